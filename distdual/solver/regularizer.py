"""The regulariser: 1/2 ||w||², or a Gaussian prior with mean w0 and precision Λ, and w_k ≥ 0 on any set.

    R(w)  = 1/2 (w − w0)ᵀ Λ (w − w0),   w_k ≥ 0 for k in the set
    v     = Σ α x                        never clipped: later steps need all of it
    w     = ∇R*(v)                       = w0 + Λ⁻¹ v,  and max(0, ·) on the set
    D(α)  = l·α − R*(v),   R*(v) = ⟨v, w⟩ − R(w)

The last weight can be a free bias, which R(w) leaves out. Then Σ_k α_k x_kb = 0 has to hold, and steps are taken on the
method of multipliers' R(w) + 1/2 (b − c)², whose centre c the solver moves until the minimum over b is where v_b = 0.

With a full Λ the set is not a box in the whitened weights: there w_k ≥ 0 is one more constraint (row e_k, margin 0)
without slack, that is with infinite capacity, in the same ascent; w is clipped only to evaluate P(w).
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from distdual.errors import InputError
from distdual.kernels.rows import Floats, Ints, product

MOST_PRECISE = 1e100  # of an entry of Λ, and 1 / the least, so that no product of a few overflows
EIGENVALUE_ERROR = 1e-14  # of the least eigenvalue, relative to the largest, for each weight


@dataclass(frozen=True)
class Prior:
    """R(w) = 1/2 (w − mean)ᵀ Λ (w − mean), and w_k ≥ 0 for k in `nonnegative`."""

    n_weights: int
    mean: Floats | None = None  # 0 if not given
    precision: Floats | None = None  # (n,) or (n, n); 1 if not given
    nonnegative: Ints | None = None
    free: float = 0.0  # the constant feature of the last weight, where it is a free bias; 0 if there is none

    def __post_init__(self) -> None:
        n = self.n_weights
        if self.mean is not None and (self.mean.shape != (n,) or not np.isfinite(self.mean).all()):
            raise InputError(f"prior.mean must be {n} finite numbers, one per weight; got shape {self.mean.shape}")
        if self.nonnegative is not None and len(self.nonnegative):
            lowest, highest = self.nonnegative.min(), self.nonnegative.max()
            if lowest < 0 or highest >= n:
                raise InputError(f"prior.nonnegative names weight {highest if lowest >= 0 else lowest} of {n}")
        if self.free and self.nonnegative is not None and n - 1 in self.nonnegative:
            raise InputError("prior.nonnegative names the bias, which is free")
        if self.precision is not None:
            self._check_precision(self.precision)
            if self.full and self.free and (self.precision[-1, :-1] != 0).any():
                raise InputError("prior.precision ties the bias to other weights, but the bias is free")

    def _check_precision(self, precision: Floats) -> None:
        n = self.n_weights
        if precision.shape not in ((n,), (n, n)):
            raise InputError(f"prior.precision must have shape ({n},) or ({n}, {n}), got {precision.shape}")
        if not np.isfinite(precision).all():
            raise InputError("prior.precision must be finite")
        if precision.ndim == 1 and not (precision > 0).all():
            at = int(np.argmin(precision))
            raise InputError(f"prior.precision must be positive, got {precision[at]} for weight {at}")
        if precision.ndim == 2 and not np.allclose(precision, precision.T, rtol=1e-10, atol=0):
            raise InputError("prior.precision must be a symmetric matrix")
        if precision.ndim == 2:
            try:
                self._cholesky  # noqa: B018 - computed here to reject a bad matrix at once
            except LinAlgError:
                raise InputError("prior.precision must be positive definite") from None
        size = precision if precision.ndim == 1 else precision.diagonal()
        far = size[(size < 1.0 / MOST_PRECISE) | (size > MOST_PRECISE)]
        if len(far):
            raise InputError(f"prior.precision must be {1.0 / MOST_PRECISE:g} to {MOST_PRECISE:g}, got {far[0]:g}")

    @property
    def full(self) -> bool:
        return self.precision is not None and self.precision.ndim == 2

    @property
    def plain(self) -> bool:
        """Whether there is no prior, so that w = v."""
        bounded = self.nonnegative is not None and len(self.nonnegative) > 0
        return self.mean is None and self.precision is None and not bounded

    def for_steps(self) -> "Prior":
        """The same, with a centre of a free bias that the solver may move."""
        return replace(self) if self.free else self

    @cached_property
    def centre(self) -> Floats:
        """The mean; its last entry, where the bias is free, is the centre of steps along it."""
        centre = np.zeros(self.n_weights) if self.mean is None else self.mean.copy()
        if self.free:
            centre[-1] = 0.0
        return centre

    @cached_property
    def variance(self) -> Floats:
        """1 / precision of each weight, where Λ is diagonal."""
        variance = np.ones(self.n_weights) if self.precision is None else 1.0 / self.precision
        if self.free:
            variance[-1] = 1.0
        return variance

    @cached_property
    def floor(self) -> Floats:
        """Lower bound of each weight."""
        floor = np.full(self.n_weights, -np.inf)
        if self.nonnegative is not None:
            floor[self.nonnegative] = 0.0
        return floor

    @cached_property
    def least_precision(self) -> float:
        """A lower bound of the eigenvalues of Λ."""
        if self.precision is None:
            return 1.0
        if not self.full:
            return float((self.precision[:-1] if self.free else self.precision).min(initial=np.inf))
        values = np.linalg.eigvalsh(self.precision[:-1, :-1] if self.free else self.precision)
        return float(values[0] - EIGENVALUE_ERROR * len(values) * values[-1])

    @cached_property
    def _cholesky(self) -> tuple[Floats, bool]:
        assert self.precision is not None
        precision = self.precision.copy()
        if self.free:
            precision[-1, -1] = 1.0
        factor, lower = cho_factor(precision)
        return factor, bool(lower)

    def whiten(self, v: Floats) -> Floats:
        """Λ⁻¹ v, for a vector or for each row of a matrix."""
        if not self.full:
            return self.variance * v
        return np.ascontiguousarray(cho_solve(self._cholesky, v.T).T)

    def weights(self, v: Floats) -> Floats:
        """Return w = ∇R*(v) for v = Σ α x; with a full Λ it is not clipped."""
        if self.plain and not self.free:
            return v.copy()
        w: Floats = self.centre + self.whiten(v)
        return w if self.full else np.maximum(w, self.floor)

    def feasible(self, w: Floats) -> Floats:
        """Return the nearest w with w_k ≥ 0, as a copy, for an upper bound."""
        return w.copy() if self.plain else np.maximum(w, self.floor)

    def away(self, w: Floats) -> Floats:
        """w − mean, and 0 for a free bias."""
        off = w if self.mean is None else w - self.mean
        return np.append(off[:-1], 0.0) if self.free else off

    def penalty(self, w: Floats) -> float:
        """R(w)."""
        off = self.away(w)
        if self.precision is None:
            return 0.5 * product(off, off)
        return 0.5 * product(off, self.precision @ off if self.full else self.precision * off)

    def conjugate(self, v: Floats) -> float:
        """R*(v) = sup_w ⟨v, w⟩ − R(w), or of steps where the bias is free."""
        w = self.weights(v)
        return product(v, w) - self.penalty(w) - self.off_centre(w)

    def off_centre(self, w: Floats) -> float:
        """What steps along a free bias add to R(w): 1/2 (b − c)²."""
        return 0.5 * float(w[-1] - self.centre[-1]) ** 2 if self.free else 0.0
