"""What to do next. Pure: no clock, no network, no random state of its own.

A schedule says how a pass over the data is cut into rounds, each scanned at one w, and how much ascent follows each.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from distdual.kernels.rows import Ints
from distdual.scan.slack_groups import ALL, EXAMPLE, SHARD
from distdual.solver.ascent_plan import Ascent

FIRST_PIECE = 1024  # examples scanned for the first w
NEAR = 0.05  # estimated gap below which a pass is scanned at one w, and so certifies
CERTIFY_EVERY = 4  # passes, at the least
MOST_ROUNDS = 16  # of a later pass
SLACK = 0.5  # of the target gap that the cached problem may keep
FEWER = 0.1  # of the loss that one scan has found not to be cached, the next one is likely to find
DEAR = 4.0  # times the work of all passes, above which ascents are what a run spends its time on
CHEAP = 8.0  # sweeps that a pass of the oracle may cost, which others share, to be no dearer than a look at the cache
PATIENCE = 20.0  # times the work of a scan that an ascent may take which no scan can replace
LEAST_PIECE = 128  # examples that are worth a scan of their own
PIECES = 4  # scans, at the least, that each slot gets of a pass at one w
MANY = 1000  # sweeps that are as good as "until it has converged"


class Piece(NamedTuple):
    """Examples begin … end − 1 of a shard."""

    shard: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over all examples: rounds of pieces that are scanned at one w each."""

    certify: bool  # a single round, whose losses add up to an upper bound
    rounds: tuple[tuple[Piece, ...], ...]
    between: Ascent  # after each round but the last
    last: Ascent
    prune: bool = False  # drop all constraints with α = 0 after each round, whatever solver.prune says
    overlap: bool = True  # in asynchronous mode: whether the next pass may begin before this one's last report is in


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known between two passes."""

    n_passes: int
    estimate: float  # of the gap: losses at different weights; infinity before the first pass
    gap: float  # proven; infinity before the first certificate
    oracle_sweeps: float  # what a pass of the oracle costs, in ascent sweeps over the cache
    seconds: float
    interrupted: bool = False
    inexact_gap: float = np.inf  # estimated from complete scans, where inexact inference proves none
    settled: bool = True  # whether the cached problem is solved well enough for a bound to be worth a pass


@dataclass(frozen=True, slots=True)
class Limits:
    """What the config asks for."""

    schedule: str
    target: float
    max_passes: int
    max_seconds: float
    seed: int
    grain: int = EXAMPLE  # examples that share a slack: rounds never cut such a group


@dataclass(frozen=True, slots=True)
class Stop:
    """Training is over; `reason` goes into the report word for word."""

    reason: str


def next_step(progress: Progress, sizes: Ints, limits: Limits) -> Pass | Stop:
    """Stop when the proven gap is small enough or the budget is spent, else pass over the data again."""
    if progress.gap <= limits.target:
        return Stop(f"gap {progress.gap:.2e} is at most the target {limits.target:.2e}")
    if progress.inexact_gap <= limits.target:
        return Stop(f"estimated gap {progress.inexact_gap:.2e} is at most the target; inexact inference proves none")
    if progress.interrupted:
        return Stop("interrupted")
    if progress.n_passes >= limits.max_passes:
        return Stop(f"{limits.max_passes} passes are done")
    if progress.seconds >= limits.max_seconds:
        return Stop(f"{limits.max_seconds:g} seconds are over")
    name, _, number = limits.schedule.partition(":")
    if name == "one-pass" and progress.n_passes == 1:
        return Stop("the one pass is done")
    order = np.random.default_rng([limits.seed, 0, progress.n_passes]).permutation(len(sizes))
    whole = [Piece(int(s), 0, int(sizes[s])) for s in order]
    tight = Ascent(SLACK * limits.target, MANY)
    if name == "batch" or (name == "mine" and limits.grain == ALL):
        return Pass(True, (tuple(whole),), tight, tight, overlap=False)
    if name == "mine":
        eighth = -(-int(sizes.sum()) // 8)
        certify = is_near(progress, 2 * limits.target)
        rounds = (tuple(whole),) if certify else cut_rounds(whole, eighth, eighth, limits.grain)
        return Pass(certify, rounds, tight, tight, prune=True, overlap=False)
    if name == "ratio":
        visits = Ascent(0.0, 0, revisits=int(number))
        return passing(progress, limits, whole, visits, visits)
    if name == "reprocess":
        visits = Ascent(0.0, 0, revisits=int(number), chunk=32)
        return passing(progress, limits, whole, visits, visits)
    if name == "slope":
        return passing(progress, limits, whole, *by_slope(progress, limits.target))
    return passing(progress, limits, whole, *by_gap(progress, limits.target))


def by_gap(progress: Progress, target: float) -> tuple[Ascent, Ascent]:
    """The paper's rule: explore only once the gap of the cached problem is below a tolerance, which gets tighter."""
    known = min(progress.estimate, progress.gap, 0.02)
    return Ascent(max(SLACK * target, 0.5 * known), MANY), Ascent(max(SLACK * target, 0.2 * known), MANY)


def by_slope(progress: Progress, target: float) -> tuple[Ascent, Ascent]:
    """The rule of multi-plane Frank-Wolfe: ascend while that gains more per unit of work than the round did."""
    cheap = progress.oracle_sweeps <= CHEAP
    if progress.n_passes == 0:
        return climbing(0.1, 3, confirm=False), climbing(max(SLACK * target, 0.03), 3, confirm=not cheap)
    tolerance = max(SLACK * target, min(0.03, 0.2 * min(progress.estimate, progress.gap)))
    return climbing(tolerance, 3, confirm=False), climbing(tolerance, MANY, trusting=cheap)


def climbing(tolerance: float, max_sweeps: int, *, confirm: bool = True, trusting: bool = False) -> Ascent:
    """Until that gap, or while it climbs well."""
    return Ascent(tolerance, max_sweeps, slope=True, confirm=confirm, trusting=trusting)


def after_scan(plan: Ascent, unseen: float, target: float, climbed: float) -> Ascent:
    """The ascent after a scan of all examples at one w, of whose P at most the share `unseen` was not yet cached.

    A gap of the cached problem above that share is for the ascent to close, even if it climbs slowly: a scan cannot.
    The next scan will find less, so that a pass is saved by an ascent to what it will find. `climbed` is the work of
    all ascents so far beside that of all passes: where it is much, a pass is the cheaper way.
    """
    tolerance = max(SLACK * target, unseen * (FEWER if climbed <= DEAR else 1.0))
    if not plan.slope or tolerance > plan.tolerance:
        return plan
    return replace(plan, tolerance=tolerance, slope=False, patience=PATIENCE)


def passing(progress: Progress, limits: Limits, whole: list[Piece], between: Ascent, last: Ascent) -> Pass:
    """A first pass in pieces that grow; then as many rounds as sweeps cost no more than the oracle; near, at one w."""
    n_examples = sum(piece.end for piece in whole)
    if limits.grain == ALL:
        return Pass(True, (tuple(whole),), between, last, overlap=False)  # a part of a row is of no use
    if progress.n_passes == 0:
        most = n_examples if between.slope else -(-n_examples // 8)
        return Pass(False, cut_rounds(whole, FIRST_PIECE, most, limits.grain), between, last)
    near = is_near(progress, max(NEAR, 2 * limits.target))
    n_rounds = 1 if near else min(MOST_ROUNDS, int(progress.oracle_sweeps))
    if n_rounds <= 1:
        return Pass(True, (tuple(whole),), between, last)
    size = -(-n_examples // n_rounds)
    return Pass(False, cut_rounds(whole, size, size, limits.grain), between, last)


def is_near(progress: Progress, gap: float) -> bool:
    """Whether the gap seems small enough to certify; now and then it is tried whatever the estimate says."""
    due = progress.settled and progress.n_passes % CERTIFY_EVERY == CERTIFY_EVERY - 1
    return due or min(progress.estimate, progress.gap) <= gap


def cut_rounds(whole: list[Piece], first: int, most: int, grain: int = EXAMPLE) -> tuple[tuple[Piece, ...], ...]:
    """Rounds of `first` examples, then each of as many as all before it, but of at most `most`: w comes soon.

    Shards are cut at multiples of `grain` only, so a round may get a few more.
    """
    rounds: list[tuple[Piece, ...]] = []
    current: list[Piece] = []
    seen, room = 0, min(first, most)
    for piece in whole:
        begin = piece.begin
        while begin < piece.end:
            end = min(piece.end, -(-(begin + room) // grain) * grain)
            current.append(Piece(piece.shard, begin, end))
            seen, room, begin = seen + end - begin, room - (end - begin), end
            if room <= 0:
                rounds.append(tuple(current))
                current, room = [], min(max(first, seen), most)
    if current:
        rounds.append(tuple(current))
    return tuple(rounds)


def cut_pieces(plan: Pass, slots: int, grain: int = EXAMPLE) -> list[Piece]:
    """The pieces of a pass in order, cut further so that none of `slots` scans at once waits long for the others."""
    pieces: list[Piece] = []
    for each in plan.rounds:
        n_examples = sum(piece.end - piece.begin for piece in each)
        most = max(LEAST_PIECE, -(-n_examples // (PIECES * slots if len(plan.rounds) == 1 else slots)))
        most = -(-most // grain) * grain if grain < SHARD else n_examples
        for shard, begin, end in each:
            parts = -(-(end - begin) // most)
            cuts = (
                [begin + -(-(end - begin) * k // parts // grain) * grain for k in range(parts)]
                if parts > 1
                else [begin]
            )
            pieces += [Piece(shard, a, b) for a, b in zip(cuts, [*cuts[1:], end], strict=True) if a < b]
    return pieces
