"""The solver: a warm-started maximiser of D(α) over the cached constraints."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from distdual.errors import InputError
from distdual.kernels.rounding import MARGIN, Enclosed, enclosed_product
from distdual.kernels.rows import Floats, Ints, product
from distdual.problems.base import Constraints, Magnitude
from distdual.solver.ascent_plan import UNLIMITED_SWEEPS, Ascent
from distdual.solver.balance import Balanced, balanced_dual, better, last_column, scaled_to_balance
from distdual.solver.cache import ConstraintCache, View
from distdual.solver.climb import NO_MEAN, climb, sweep
from distdual.solver.extrapolate import PACE
from distdual.solver.gap import relative_gap
from distdual.solver.growable import ROOM, Room
from distdual.solver.proven import Mass, dual, lower_bound
from distdual.solver.regularizer import Prior
from distdual.solver.sweep import add_rows, group_losses
from distdual.solver.tracking import track

NEARLY = 4.0  # multiple of the tolerance that UB′ may be when the gap is within it
MOST_OFF = 100.0  # largest ratio of the gap to that of UB′ for UB′ to be useful
MIN_CHUNK = 32  # new constraints of groups between visits, to spare calls
SWEEP_WORK = 1000  # fixed cost of a sweep, in updates
EASY = 16.0  # mean C ||x||² of the first stage on the way to a large C: about as many visits take α from 0 to C
SAVED_ARRAYS = ("v", "w", "mean", "average", "random")
SAVED_NUMBERS = ("n_averaged", "updates", "lower", "rounding", "claim", "reached", "trust", "stage")


class SweepResult(NamedTuple):
    gain: float  # in D
    estimate: float  # of the cached problem's P: UB′ (23) where all groups were visited
    active: Ints  # groups that moved or may still move


class Solver:
    """Owns the cache, α and w. α stays feasible and w = ∇R*(Σ α x) at all times; D(α) never falls."""

    def __init__(self, C: float, seed: int, prior: Prior, room: Room = ROOM) -> None:
        self.prior = prior = prior.for_steps()
        self.C = C
        self.cache = ConstraintCache(C, prior, room)
        self.v: Floats = np.zeros(prior.n_weights)
        self.w: Floats = prior.weights(self.v)
        self.claim = np.inf  # the cached problem's gap by UB′, after the last full sweep
        self.reached = -np.inf  # D at that point
        self.trust = np.inf  # ratio of the true gap to `claim` at the last check; infinity: unknown
        self.mean: Floats = np.empty(0)  # of w over the last full sweep, if nothing changed since
        self.average: Floats = np.zeros(prior.n_weights)  # w̄ over the last visits of `reprocess` …
        self.n_averaged = 0  # … that many; 0 before
        self.updates = 0
        self.random = np.random.default_rng([seed, 1]).integers(1, 2**63, size=1, dtype=np.uint64)
        self.sample = np.random.default_rng([seed, 2])
        self._view: View | None = None
        self.should_stop: Callable[[], bool] = lambda: False
        self.magnitude = Magnitude()  # of all examples that constraints in the cache come from
        self.combined: Callable[[], tuple[int, int]] = lambda: (1, 0)  # most examples of a row; rows made of others
        self.ceiling = np.inf  # an upper bound of P(w*), which bounds a free bias
        self.even: Balanced | None = None  # α as `settle` left it
        self.lower, self.rounding = -np.inf, 0.0  # the lower bound, and what it leaves for rounding
        self.offer(self.proven_dual())

    def insert(self, *parts: Constraints, references: Sequence[Ints] = ()) -> Ints:
        """Add the new ones among these constraints and return their slots; the first call also adds w_k ≥ 0."""
        if not len(self.cache) and self.prior.full:
            self.cache.insert_nonnegative(next((part.rows for part in parts if len(part.margin)), parts[0].rows))
        slots = self.cache.insert(*parts, references=references)
        self._view, self.mean = None, np.empty(0)
        return slots

    @property
    def stage(self) -> float:
        """The C that α is limited by now; smaller than C on the way to a large one."""
        return self.cache.C

    @stage.setter
    def stage(self, C: float) -> None:
        self.cache.C, self._view = C, None

    def ease(self, above: float = EASY) -> None:
        """Begin at C/2^k where C is large for rows as long as the cached ones: from α = 0 it would take many sweeps.

        C is large if the mean of C ||x||² is above this.
        """
        if not self.prior.plain or not len(self.cache):
            return
        work = self.C * float(np.mean(self.cache.cost.view * self.cache.curve.view))
        if work > above:
            self.stage = self.C / 2 ** np.ceil(np.log2(work / EASY))

    def harden(self, tolerance: float, *, fully: bool) -> None:
        """Double the C of this stage, or climb to the last one, with the cached problem solved to this gap at each."""
        while self.stage < self.C and not self.should_stop():
            self.ascend(Ascent(tolerance, UNLIMITED_SWEEPS))
            self._double()
            if not fully:
                break

    def _double(self) -> None:
        """Double the bounds of α, and move α towards its double as far as D grows."""
        self.stage *= 2.0
        v = self.w.copy()
        if self.prior.free:
            v[-1] = self.excess
        bend = product(v, v)
        slope = product(self.cache.margin.view, self.cache.alpha.view) - product(v, self.w)
        self.cache.alpha.view[:] *= 1.0 + (min(1.0, max(0.0, slope / bend)) if bend > 0.0 else 1.0)
        self.mean = NO_MEAN
        self.bound()

    def process(self, slots: Ints) -> float:
        """Improve the groups of these constraints once, and return the gain in D."""
        return self.sweep(self._groups(slots)).gain if len(slots) else 0.0

    def reprocess(self, slots: Ints, plan: Ascent) -> None:
        """Take in new constraints one by one, each followed by visits to random ones (Usunier et al., Alg. 1 and 2).

        Where constraints share slacks, visits are to groups, after each chunk of new constraints.
        """
        if not len(slots):
            return
        self.n_averaged = plan.revisits
        if self.cache.single and plan.chunk == 1:
            view = self._arrays()
            columns = (view.space, view.rows, view.margin, view.alpha, view.curve, view.most)
            state = (self.random, self.w, self.v, self.average)
            track(*columns, slots, plan.revisits, plan.process, *state)
            self.updates += len(slots) * (plan.revisits + plan.process)
            return
        size = max(plan.chunk, MIN_CHUNK) if plan.chunk else len(slots)
        for begin in range(0, len(slots), size):
            chunk = slots[begin : begin + size]
            if plan.process:
                self.process(chunk)
            self.average[:] = 0.0
            self.sweep(self.sample.integers(self.cache.n_groups, size=plan.revisits * len(chunk)), self.average)

    def ascend(self, plan: Ascent, gained: float = 0.0, spent: float = 0.0) -> float:
        """Improve α according to `plan`, and return the cached problem's gap or an estimate of it.

        Each full sweep is followed by sweeps over the groups that moved, while these gain more per update than all
        since the full sweep; the next full sweep checks the rest. The gap is that of the cached constraints only. UB′
        takes each loss at another w and may be below the optimum, so it decides only when to compute the gap by a pass
        over the cache, unless the plan trusts it: where a scan is as cheap as that pass, the scan shows by how much to
        correct UB′. `gained` and `spent` are gain and work, in updates, of the round so far, for the slope rule.
        """
        gap, limit = np.inf, plan.patience * max(1.0, spent)
        for _ in range(plan.max_sweeps if len(self.cache) else 0):
            self.mean = np.zeros(self.prior.n_weights)
            sweep = self.sweep(np.arange(self.cache.n_groups), self.mean)
            self.reached = self.dual_objective()
            self.claim = gap = relative_gap(sweep.estimate, self.reached)
            if gap <= NEARLY * plan.tolerance and plan.confirm:
                gap = self._confirmed_gap(gap, trusting=plan.trusting)
            if gap <= plan.tolerance and self.excess**2 <= plan.tolerance * abs(self.reached):
                break
            self._recentre()
            gain, work = self._sweep_active(sweep)
            gained, spent = gained + gain, spent + work
            slow = plan.slope and not gain * spent > gained * work
            if slow or spent > limit or self.should_stop():
                break
        return gap

    def _confirmed_gap(self, claim: float, *, trusting: bool) -> float:
        """Return the cached problem's gap, by a pass over it or, if trusted, by UB′ corrected."""
        if trusting and claim > 0.0 and self.trust < np.inf:
            return self.trust * claim
        upper = self.cache_upper()
        self.learn(upper)
        return relative_gap(upper, self.reached)

    def learn(self, cache_upper: float) -> None:
        """Compare UB′ with the cached problem's P at the candidate weights."""
        gap = relative_gap(cache_upper, self.reached)
        known = 0.0 < self.claim < np.inf and 0.0 < gap <= MOST_OFF * self.claim
        self.trust = gap / self.claim if known else np.inf

    def distrust(self) -> None:
        """Forget how far off UB′ was: the scan was of another problem than the cached one."""
        self.trust = np.inf

    def _sweep_active(self, full: SweepResult) -> tuple[float, int]:
        """Sweep over the active groups while that pays; return gain and work, including the full sweep."""
        n, pace = self.cache.n_groups, PACE if self.prior.plain else 0
        moving = (self.random, self.w, self.v)
        gain, work = climb(self._arrays(), full.active, *moving, full.gain, n + SWEEP_WORK, pace)
        self.updates += work - n - SWEEP_WORK
        return gain, work

    @property
    def excess(self) -> float:
        """Σ α x_b of a free bias, up to accumulated rounding; 0 without one."""
        return float(self.w[-1] - self.prior.centre[-1]) if self.prior.free else 0.0

    def _recentre(self) -> None:
        """Move the centre of a free bias by the imbalance that steps have left (method of multipliers)."""
        excess = self.excess
        if excess:
            self.prior.centre[-1] += excess
            self.w[-1] += excess

    def settle(self) -> None:
        """Balance α where the bias is free; D does not fall below that of the last balanced α."""
        if not self.prior.free or not len(self.cache):
            return
        alpha, margin, old = self.cache.alpha.view, self.cache.margin.view, self._evened()
        if old is not None and np.array_equal(alpha, old.alpha):
            return
        self._recentre()
        view = self._arrays()
        made, v = (
            scaled_to_balance(alpha, view.most, last_column(view.rows, self.prior.n_weights)),
            np.empty_like(self.v),
        )
        add_rows(view.rows, made, v)
        new = Balanced(made, v, balanced_dual(self.prior, margin, made, v))
        self._even_out(new if old is None else better(self.prior, margin, old, new))

    def _evened(self) -> Balanced | None:
        """What `settle` left, with α = 0 for constraints inserted since."""
        old, n = self.even, len(self.cache)
        if old is None or len(old.alpha) == n:
            return old
        return old._replace(alpha=np.concatenate([old.alpha, np.zeros(n - len(old.alpha))]))

    def _even_out(self, chosen: Balanced) -> None:
        self.even = chosen._replace(v=chosen.v.copy())
        self.cache.alpha.view[:] = chosen.alpha
        self.v[:] = chosen.v
        self.w[:] = self.prior.weights(self.v)

    def meet_upper(self, upper: float) -> None:
        """Learn an upper bound of P(w*)."""
        self.ceiling = min(self.ceiling, upper)
        if self.prior.free:
            self.bound()

    def forget_upper(self) -> None:
        """Forget the upper bound of P(w*), as P is another."""
        self.ceiling = np.inf

    def bound(self) -> float:
        """Rebuild v and w from α and return `lower`: D(α), which holds for the full problem."""
        if self.prior.free:
            self.settle()
        elif len(self.cache):
            view = self._arrays()
            add_rows(view.rows, view.alpha, self.v)
            self.w[:] = self.prior.weights(self.v)
        self.offer(self.proven_dual())
        return self.lower

    def offer(self, found: Enclosed) -> None:
        """Keep the highest lower bound; coalescing may lower it by rounding."""
        if found.low > self.lower:
            self.lower, self.rounding = found.low, found.value - found.low

    def meet(self, magnitude: Magnitude) -> None:
        """Learn how large the numbers are that the rows of coming constraints are made of."""
        self.magnitude = self.magnitude.joined(magnitude)

    def proven_dual(self) -> Enclosed:
        """D(α) at v as `bound` rebuilds it, or D(0) if that is higher, with a bound on rounding."""
        (members, remixed), alpha = self.combined(), self.cache.alpha.view
        together = members * max(1.0, self.magnitude.cost) if members > 1 else 1.0
        mass = Mass(MARGIN * together * float(alpha.sum()), np.count_nonzero(alpha) + members + remixed + 4.0)
        linear = enclosed_product(self.cache.margin.view, alpha)
        found = dual(self.prior, linear, self.v, mass, self.magnitude, self.ceiling)
        return lower_bound(self.prior, found)

    def cache_upper(self) -> float:
        """Return P of the cached constraints at the candidate weights, which steers the solver but is not a bound."""
        return self.cached_objective(self.candidate())

    def cached_objective(self, w: Floats) -> float:
        w = self.prior.feasible(w)
        return self.prior.penalty(w) + self.cached_loss(w)

    def cached_loss(self, w: Floats) -> float:
        """Return the loss at w over the cached constraints."""
        if not len(self.cache):
            return 0.0
        return float(self._group_losses(w).sum())

    def losses_between(self, w: Floats, first: Ints, *, together: bool) -> Floats:
        """The loss at w over the cached constraints of each shard, or of all together."""
        cuts = np.searchsorted(self.cache.group_example, first[[0, -1]] if together else first)
        if not len(self.cache):
            return np.zeros(len(cuts) - 1)
        each = np.append(self._group_losses(w), 0.0)
        return np.where(cuts[1:] > cuts[:-1], np.add.reduceat(each, cuts)[:-1], 0.0)

    def _group_losses(self, w: Floats) -> Floats:
        view, losses = self._arrays(), np.empty(self.cache.n_groups)
        group_losses(view.rows, view.margin, view.members, view.group_indptr, view.capacity, w, losses)
        return losses

    def start_from(self, constraints: Constraints, alpha: Floats, references: Sequence[Ints] = ()) -> None:
        """Insert constraints with their α, which the caller has made feasible."""
        slots = self.insert(constraints, references=references)
        self.even = None
        if len(slots) < len(alpha):
            raise InputError(f"solver.start: {len(alpha) - len(slots)} of its support constraints are listed twice")
        self.cache.alpha.view[slots] = alpha
        self.bound()

    def change_capacity(self, C: float) -> None:
        """Change C, and scale α with it: α stays feasible, and α at its bound stays there."""
        self.settle()
        self.even, self.ceiling = None, np.inf
        cache, scale = self.cache, C / self.cache.C
        before, most = cache.C * cache.cost.view, C * cache.cost.view
        cache.C = self.C = C
        alpha = cache.alpha.view
        alpha[:] = np.where(alpha == before, most, np.minimum(scale * alpha, most))
        if not cache.single:  # rounding may push a sum beyond its bound
            first = cache.group_indptr[:-1]
            used, room = np.add.reduceat(alpha[cache.members], first), most[cache.members[first]]
            share = np.divide(room, used, out=np.ones(len(used)), where=used > room)
            alpha[cache.members] *= np.repeat(share, np.diff(cache.group_indptr))
        self._view, self.mean, self.lower, self.rounding = None, NO_MEAN, -np.inf, 0.0
        self.bound()

    def replace(self, constraints: Constraints, alpha: Floats, references: Sequence[Ints] = ()) -> None:
        """Replace all constraints of examples by these, with the same Σ α x and Σ α l, so that nothing else changes."""
        beta, self.even = self.multipliers(), None
        self.cache.clear()
        slots = self.insert(constraints, references=references)
        self.cache.alpha.view[slots] = alpha
        own = np.flatnonzero(self.cache.example.view < 0)
        self.cache.alpha.view[own] = beta[-1 - self.cache.example.view[own]]

    def move(self, stay: Ints, parts: Sequence[Constraints], alpha: Floats) -> None:
        """Switch to another problem: keep the slots `stay`, and add `parts` with their α, feasible together.

        No constraint of `parts` is in `stay`. `lower` is reset.
        """
        self.even, self.ceiling = None, np.inf
        if len(stay) < len(self.cache):
            self.cache.keep(stay)
        if len(alpha):
            slots = self.insert(*parts)
            self.cache.alpha.view[slots] = alpha
        self._view, self.mean, self.lower, self.rounding = None, NO_MEAN, -np.inf, 0.0
        self.average[:], self.n_averaged = 0.0, 0
        self.bound()

    def packed(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The state besides the cache: arrays, and values that JSON can hold apart from infinities."""
        self.settle()
        numbers = {name: getattr(self, name) for name in SAVED_NUMBERS} | {"magnitude": list(self.magnitude)}
        if self.prior.free:
            numbers |= {"centre": float(self.prior.centre[-1]), "ceiling": self.ceiling}
        return {name: getattr(self, name) for name in SAVED_ARRAYS}, {
            **numbers,
            "sample": self.sample.bit_generator.state,
        }

    def restore(self, arrays: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Restore what `packed` returned; the cache is already restored."""
        for name in SAVED_ARRAYS:
            setattr(self, name, arrays[name])
        for name in SAVED_NUMBERS:
            setattr(self, name, values[name])
        self.magnitude = Magnitude(*values["magnitude"])
        if self.prior.free:
            self.prior.centre[-1], self.ceiling = values["centre"], values["ceiling"]
            alpha = self.cache.alpha.view.copy()
            self.even = Balanced(alpha, self.v.copy(), balanced_dual(self.prior, self.cache.margin.view, alpha, self.v))
        self.sample.bit_generator.state = values["sample"]

    def multipliers(self) -> Floats:
        """Return β of w_k ≥ 0, one per weight, where the prior's precision is a full matrix."""
        beta = np.zeros(self.prior.n_weights if self.prior.full else 0)
        own = np.flatnonzero(self.cache.example.view < 0)
        beta[-1 - self.cache.example.view[own]] = self.cache.alpha.view[own]
        return beta

    def candidate(self, *, averaged: bool = False) -> Floats:
        """Return the weights to scan with and to certify, made feasible.

        These are the average over the last full sweep, whose P is lower than that of its last w, or else w itself.
        With `averaged`, they are w̄ over the last visits of `reprocess`.
        """
        if averaged and self.n_averaged:
            return self.prior.feasible(self.average)
        return self.prior.feasible(self.mean if self.mean.any() else self.w)

    @property
    def n_support(self) -> int:
        """Number of constraints with α > 0, including w_k ≥ 0."""
        return int(np.count_nonzero(self.cache.alpha.view))

    def prune(self, idle: int) -> int:
        """Drop constraints whose α has been 0 for more than `idle` prunings, if that pays; return how many."""
        self.settle()
        dropped = self.cache.prune(idle)
        if dropped:
            self._view = None
            if self.even is not None:
                self.even = self.even._replace(alpha=self.cache.alpha.view.copy())
        return dropped

    def _groups(self, slots: Ints) -> Ints:
        """Return what `sweep` visits for these constraints: slots where no slack is shared, else groups."""
        if self.cache.single:
            return slots
        return np.searchsorted(self.cache.group_example, np.unique(self.cache.example.view[slots]))

    def _arrays(self) -> View:
        if self._view is None:
            self._view = self.cache.view()
        return self._view

    def sweep(self, chosen: Ints, mean: Floats = NO_MEAN) -> SweepResult:
        """Sweep once over the chosen groups, or slots where no slack is shared; fill `mean` with the average w."""
        gain, loss, active = sweep(self._arrays(), chosen, self.random, self.w, self.v, mean)
        self.updates += len(chosen)
        penalty = self.prior.penalty(self.w) + self.prior.off_centre(self.w)
        return SweepResult(gain, penalty + loss, active)

    def dual_objective(self) -> float:
        """Return D(α) at the current v, which is free of accumulated rounding only after `bound`."""
        linear = product(self.cache.margin.view, self.cache.alpha.view)
        if self.prior.plain:
            centre = float(self.prior.centre[-1]) if self.prior.free else 0.0
            return linear - 0.5 * product(self.w, self.w) + 0.5 * centre * centre
        if self.prior.full and len(self.cache):
            view = self._arrays()
            add_rows(view.rows, view.alpha, self.v)
        return linear - self.prior.conjugate(self.v)
