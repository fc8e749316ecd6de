"""The schedule: what to do next. Pure: no clock, no network, no random state of its own.

A schedule cuts a pass over the data into rounds, each scanned at one w, and says how much ascent follows each.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from distdual.kernels.rows import Ints
from distdual.scan.slack import EXAMPLE, Slack
from distdual.solver.ascent_plan import UNLIMITED_SWEEPS, Ascent

FIRST_PIECE = 1024  # examples scanned for the first w
CERTIFY_BELOW = 0.05  # estimated gap below which a pass is scanned at one w, and so certifies
CERTIFY_EVERY = 4  # certify at least once in so many passes
MAX_ROUNDS = 16  # rounds of a pass after the first …
EXPENSIVE_ROUNDS = 4  # … and where calls are expensive: all workers wait for the last report of a round
CACHE_GAP_SHARE = 0.5  # share of the target gap left to the cached problem
NEXT_SCAN_SHARE = 0.1  # share of the uncached loss of one scan that the next is likely to find
ASCENT_DOMINATES = 4.0  # ratio of ascent work to scan work above which a pass is the cheaper step
CHEAP_PASS = 8.0  # cost of a pass, in sweeps, below which a scan replaces an evaluation of the cached problem
MAX_ASCENT = 20.0  # limit of an ascent that no scan can replace, as a multiple of the work of a scan
EXPENSIVE_CALL = 1000.0  # oracle work from which a shard may keep one worker busy for long: about 1 ms a call
PIECE_WORK = 80_000.0  # oracle work of the smallest pieces that it is cut into: about 80 ms, many times a task's
SHARERS = 64  # parts of what is left of a round, one of which a piece may be: 32 workers share it well
STREAM_ROUNDS = 16  # windows of a pass over streamed data, at least …
WINDOW_BYTES = 256 << 20  # … and the most bytes of a window, whose shards workers hold between its visits
MIN_PYTHON_PIECE = 16  # examples of the smallest pieces where the oracle is Python code
MIN_PIECE = 128  # examples worth a scan of their own
SINGLE_GROUP_IDLE = 8  # factor on idle passes before pruning, where a pass adds a single constraint
PIECES_PER_SLOT = 4  # scans of a certifying pass for each slot, at least


class Piece(NamedTuple):
    """Examples begin … end − 1 of a shard."""

    shard: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over all examples: rounds of pieces, each round scanned at one w."""

    certify: bool  # a single round, whose losses add up to an upper bound
    rounds: tuple[tuple[Piece, ...], ...]
    between: Ascent  # after each round but the last
    last: Ascent
    prune: bool = False  # drop all constraints with α = 0 after each round, regardless of solver.prune
    overlap: bool = True  # asynchronous mode: whether the next pass may begin before the last report
    visits: int = 1  # scans of each round, while workers hold its shards; all at a newer w than the one before


@dataclass(frozen=True, slots=True)
class Progress:
    """The facts that a decision between two passes rests on."""

    n_passes: int
    estimate: float  # of the gap: losses at different weights; infinity before the first pass
    gap: float  # proven; infinity before the first certificate
    oracle_sweeps: float  # cost of a pass, in ascent sweeps over the cache
    seconds: float
    interrupted: bool = False
    inexact_gap: float = np.inf  # an estimate from complete scans with inexact inference
    settled: bool = True  # whether the cached problem is solved well enough to certify
    n_filled: int = 0  # passes begun only to keep workers busy, which limit nothing
    contradiction: str | None = None  # what cannot be if problem, data and dual are right
    closable: float = np.inf  # the gap to what inference finds, where it leaves a part of `gap` open
    validation: str | None = None  # why scores on other data ask to stop


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits set by the config."""

    schedule: str
    target: float
    max_passes: int
    max_seconds: float
    seed: int
    slack: Slack = EXAMPLE  # examples that share a slack: rounds never cut such a group
    streamed_bytes: int = 0  # of shards that each pass reads and prepares; 0 where they stay in memory
    visits: int = 1  # scans of an example that pay, once it is read
    max_rounds: int = MAX_ROUNDS  # of a pass after the first
    process: bool = True  # with the schedule "reprocess:K": a step on each new constraint


class Cause(StrEnum):
    """Why a run stops, as a code for programs."""

    TARGET = "target"  # the proven gap is small enough
    ESTIMATE = "estimate"  # the same of an estimated gap, where inference is inexact
    INTERRUPTED = "interrupted"
    MAX_PASSES = "max_passes"
    MAX_SECONDS = "max_seconds"
    ONE_PASS = "one-pass"
    RELAXED = "relaxed"  # what is left of the gap is what inference leaves open
    VALIDATION = "validation"  # the score on other data no longer improves
    CONTRADICTION = "contradiction"  # bounds or constraints that cannot all be right


@dataclass(frozen=True, slots=True)
class Stop:
    """Training is over; `reason` appears verbatim in the report."""

    cause: Cause
    reason: str


INTERRUPTED = Stop(Cause.INTERRUPTED, "interrupted")


def out_of_time(max_seconds: float) -> Stop:
    return Stop(Cause.MAX_SECONDS, f"{max_seconds:g} seconds are over")


def next_step(progress: Progress, sizes: Ints, limits: Limits) -> Pass | Stop:
    """Stop if the proven gap is small enough or the budget is spent; otherwise pass over the data again."""
    if progress.contradiction:
        return Stop(Cause.CONTRADICTION, progress.contradiction)
    if progress.gap <= limits.target:
        return Stop(Cause.TARGET, f"gap {progress.gap:.2e} is at most the target {limits.target:.2e}")
    if progress.inexact_gap <= limits.target:
        found = f"estimated gap {progress.inexact_gap:.2e}"
        return Stop(Cause.ESTIMATE, f"{found} is at most the target; inexact inference proves none")
    if progress.closable <= limits.target:
        return Stop(Cause.RELAXED, f"inference leaves open what remains of the gap, {progress.gap:.2e}")
    if progress.interrupted:
        return INTERRUPTED
    if progress.n_passes - progress.n_filled >= limits.max_passes:
        return Stop(Cause.MAX_PASSES, f"{limits.max_passes} passes are done")
    if progress.seconds >= limits.max_seconds:
        return out_of_time(limits.max_seconds)
    if progress.validation:
        return Stop(Cause.VALIDATION, progress.validation)
    name, _, number = limits.schedule.partition(":")
    if name == "one-pass" and progress.n_passes == 1:
        return Stop(Cause.ONE_PASS, "the one pass is done")
    order = np.random.default_rng([limits.seed, 0, progress.n_passes]).permutation(len(sizes))
    whole = [Piece(int(s), 0, int(sizes[s])) for s in order]
    tight = Ascent(CACHE_GAP_SHARE * limits.target, UNLIMITED_SWEEPS)
    if name == "batch" or (name == "mine" and limits.slack.is_all):
        return Pass(True, (tuple(whole),), tight, tight, overlap=False)
    if name == "mine":
        eighth = -(-int(sizes.sum()) // 8)
        certify = is_near(progress, 2 * limits.target)
        rounds = (tuple(whole),) if certify else cut_rounds(whole, eighth, eighth, limits.slack)
        return Pass(certify, rounds, tight, tight, prune=True, overlap=False)
    if name == "ratio":
        visits = Ascent(0.0, 0, revisits=int(number))
        return passing(progress, limits, whole, visits, visits)
    if name == "reprocess":
        visits = Ascent(0.0, 0, revisits=int(number), chunk=1, process=limits.process)
        return passing(progress, limits, whole, visits, visits)
    if name == "slope":
        ascents = by_slope(progress, limits.target)
        if limits.streamed_bytes and not limits.slack.is_all:
            return streaming(progress, limits, whole, *ascents)
        return passing(progress, limits, whole, *ascents)
    return passing(progress, limits, whole, *by_gap(progress, limits.target))


def by_gap(progress: Progress, target: float) -> tuple[Ascent, Ascent]:
    """The paper's rule: scan once the gap of the cached problem is below a tolerance that tightens."""
    known = min(progress.estimate, progress.gap, 0.02)
    return Ascent(max(CACHE_GAP_SHARE * target, 0.5 * known), UNLIMITED_SWEEPS), Ascent(
        max(CACHE_GAP_SHARE * target, 0.2 * known), UNLIMITED_SWEEPS
    )


def by_slope(progress: Progress, target: float) -> tuple[Ascent, Ascent]:
    """The rule of multi-plane Frank-Wolfe: ascend while it gains more per unit of work than the round did."""
    cheap = progress.oracle_sweeps <= CHEAP_PASS
    if progress.n_passes == 0:
        return climbing(0.1, 3, confirm=False), climbing(max(CACHE_GAP_SHARE * target, 0.03), 3, confirm=not cheap)
    tolerance = max(CACHE_GAP_SHARE * target, min(0.03, 0.2 * min(progress.estimate, progress.gap)))
    return climbing(tolerance, 3, confirm=False), climbing(tolerance, UNLIMITED_SWEEPS, trusting=cheap)


def climbing(tolerance: float, max_sweeps: int, *, confirm: bool = True, trusting: bool = False) -> Ascent:
    """Ascend to that gap, or while the slope rule allows."""
    return Ascent(tolerance, max_sweeps, slope=True, confirm=confirm, trusting=trusting)


def after_scan(plan: Ascent, unseen: float, target: float, climbed: float) -> Ascent:
    """The ascent after a scan of all examples at one w, where at most the share `unseen` of P(w) was not cached.

    Only the ascent can close a gap of the cached problem above that share. The next scan finds less than this one, so
    an ascent to what it will find saves a pass. `climbed` is the work of all ascents relative to that of all passes:
    if it is large, a pass is the cheaper step.
    """
    tolerance = max(CACHE_GAP_SHARE * target, unseen * (NEXT_SCAN_SHARE if climbed <= ASCENT_DOMINATES else 1.0))
    if not plan.slope or tolerance > plan.tolerance:
        return plan
    return replace(plan, tolerance=tolerance, slope=False, patience=MAX_ASCENT)


def passing(progress: Progress, limits: Limits, whole: list[Piece], between: Ascent, last: Ascent) -> Pass:
    """A first pass in growing rounds; then rounds as the oracle cost allows; near the target one round at one w."""
    n_examples = sum(piece.end for piece in whole)
    if limits.slack.is_all:
        return Pass(True, (tuple(whole),), between, last, overlap=False)  # rows are sums over all shards
    if progress.n_passes == 0:
        most = n_examples if between.slope else -(-n_examples // 8)
        return Pass(False, cut_rounds(whole, FIRST_PIECE, most, limits.slack), between, last)
    near = is_near(progress, max(CERTIFY_BELOW, 2 * limits.target))
    n_rounds = 1 if near else min(limits.max_rounds, int(progress.oracle_sweeps))
    if n_rounds <= 1:
        return Pass(True, (tuple(whole),), between, last)
    size = -(-n_examples // n_rounds)
    return Pass(False, cut_rounds(whole, size, size, limits.slack), between, last)


def streaming(progress: Progress, limits: Limits, whole: list[Piece], between: Ascent, last: Ascent) -> Pass:
    """A pass that takes as much as it can from each shard it reads: window by window, each scanned several times.

    Every pass but the first certifies the w it began with: a pass for the certificate alone would read as much.
    """
    n_examples = sum(piece.end for piece in whole)
    first = progress.n_passes == 0
    n_rounds = max(STREAM_ROUNDS, -(-limits.streamed_bytes // WINDOW_BYTES))
    size = -(-n_examples // n_rounds)
    if limits.visits == 1:
        rounds = cut_rounds(whole, FIRST_PIECE, n_examples, limits.slack) if first else (tuple(whole),)
    else:
        rounds = cut_rounds(whole, min(FIRST_PIECE, size) if first else size, size, limits.slack)
    return Pass(not first, rounds, between, last, visits=limits.visits)


def is_near(progress: Progress, gap: float) -> bool:
    """Whether to certify: the gap seems small enough, or CERTIFY_EVERY passes are over."""
    due = progress.settled and progress.n_passes % CERTIFY_EVERY == CERTIFY_EVERY - 1
    return due or min(progress.estimate, progress.gap) <= gap


def cut_rounds(whole: list[Piece], first: int, most: int, slack: Slack = EXAMPLE) -> tuple[tuple[Piece, ...], ...]:
    """Rounds of `first` examples, then each as large as all before it, up to `most`, so that w is fresh early.

    No slack group is cut, so a round may be slightly larger.
    """
    rounds: list[tuple[Piece, ...]] = []
    current: list[Piece] = []
    seen, room = 0, min(first, most)
    for piece in whole:
        begin = piece.begin
        while begin < piece.end:
            end = slack.next_cut(begin + room, piece.end)
            current.append(Piece(piece.shard, begin, end))
            seen, room, begin = seen + end - begin, room - (end - begin), end
            if room <= 0:
                rounds.append(tuple(current))
                current, room = [], min(max(first, seen), most)
    if current:
        rounds.append(tuple(current))
    return tuple(rounds)


def max_rounds(oracle_work: float) -> int:
    """The most rounds of a pass after the first."""
    return EXPENSIVE_ROUNDS if oracle_work >= EXPENSIVE_CALL else MAX_ROUNDS


def cut_pieces(plan: Pass, slots: int, slack: Slack = EXAMPLE, least: int = MIN_PIECE) -> list[Piece]:
    """The pieces of a pass in order, cut further so that `slots` parallel scans end at about the same time."""
    pieces: list[Piece] = []
    for each in plan.rounds:
        n_examples = sum(piece.end - piece.begin for piece in each)
        most = max(least, -(-n_examples // (PIECES_PER_SLOT * slots if len(plan.rounds) == 1 else slots)))
        most = slack.next_cut(most, n_examples)
        for shard, begin, end in each:
            parts = -(-(end - begin) // most)
            cuts = [slack.next_cut(begin + -(-(end - begin) * k // parts), end) for k in range(1, parts)]
            cuts = [begin, *cuts]
            pieces += [Piece(shard, a, b) for a, b in zip(cuts, [*cuts[1:], end], strict=True) if a < b]
    return pieces


def cut_expensive(
    pieces: tuple[Piece, ...], oracle_work: float, slack: Slack, *, shared: bool = False
) -> tuple[Piece, ...]:
    """Cut pieces of an expensive oracle so that many workers can share a round; `cut_pieces` does so by slots.

    They shrink towards the end of the round, so that tasks are few and all workers end at about the same time. The
    cuts depend on what is declared alone, so deterministic runs are the same for any number of workers. With `shared`,
    pieces may be small however cheap the oracle says it is.
    """
    if oracle_work < EXPENSIVE_CALL and not shared:
        return pieces
    least = max(1, int(PIECE_WORK / oracle_work))
    if shared:
        least = min(least, MIN_PYTHON_PIECE)
    left = sum(piece.end - piece.begin for piece in pieces)
    found: list[Piece] = []
    for shard, begin, end in pieces:
        while begin < end:
            parts = -(-(end - begin) // max(least, left // SHARERS))
            cut = slack.next_cut(begin + -(-(end - begin) // parts), end)
            found.append(Piece(shard, begin, cut))
            left -= cut - begin
            begin = cut  # noqa: PLW2901
    return tuple(found)


def counts_visits(schedule: str) -> bool:
    """Whether the schedule fixes the number of visits to old constraints for each new one."""
    return schedule.startswith(("ratio:", "reprocess:"))


def idle_passes(policy: str, slack: Slack) -> int | None:
    """Passes with α = 0 after which a constraint is dropped; None for never."""
    if policy == "never":
        return None
    patience = SINGLE_GROUP_IDLE if slack.is_all else 1
    return 0 if policy == "aggressive" else patience * int(policy.partition(":")[2])
