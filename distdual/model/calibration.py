"""Calibration: decision values to probabilities, by Platt's sigmoid or isotonic regression, one curve for each class.

A binary model has one curve, for the second class. A multiclass model has one a class, fitted against all others; the
probabilities of a row are scaled to sum to 1, as scikit-learn does. coordinator/calibrate.py fits the curves to
held-out decision values.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import expit, xlogy

from distdual.errors import InputError
from distdual.kernels.rows import Floats, Int32s
from distdual.schema import Rule, choice, each, number, rising_numbers, table, whole

METHODS = ("sigmoid", "isotonic")
MOST_STEPS = 100  # of Newton's method, which needs about ten
SETTLED = 1e-10  # share of the loss below which a step gains nothing
RIDGE = 1e-12  # added to the Hessian, which is singular for scores that are all equal


class Sigmoid(NamedTuple):
    """p = 1 / (1 + exp(−slope · score − offset))."""

    slope: float
    offset: float

    def probabilities(self, scores: Floats) -> Floats:
        found: Floats = expit(self.slope * scores + self.offset)
        return found


class Isotonic(NamedTuple):
    """A curve that never falls: linear between its points, constant outside them."""

    score: tuple[float, ...]  # strictly ascending
    probability: tuple[float, ...]

    def probabilities(self, scores: Floats) -> Floats:
        return np.interp(scores, self.score, self.probability)


CURVES: dict[str, Any] = {"sigmoid": Sigmoid, "isotonic": Isotonic}


@dataclass(frozen=True, slots=True)
class Calibration:
    method: str
    curves: tuple[Sigmoid | Isotonic, ...]  # one of a binary model, else one a class
    folds: int
    seed: int  # of the folds

    def probabilities(self, scores: Floats) -> Floats:
        """(n, K) probabilities of the classes, from (n,) or (n, K) decision values."""
        if scores.ndim == 1:
            second = self.curves[0].probabilities(scores)
            return np.stack([1.0 - second, second], axis=1)
        found = np.stack([curve.probabilities(scores[:, k]) for k, curve in enumerate(self.curves)], axis=1)
        total = found.sum(axis=1, keepdims=True)
        return np.where(total > 0.0, found / np.where(total > 0.0, total, 1.0), 1.0 / len(self.curves))

    def table(self) -> dict[str, Any]:
        """What calibration.json holds."""
        curves = [curve._asdict() for curve in self.curves]
        return {"method": self.method, "folds": self.folds, "seed": self.seed, "curves": curves}

    @staticmethod
    def of_table(told: dict[str, Any], n_curves: int, name: str) -> "Calibration":
        """The calibration that a file holds, if it has so many curves."""
        CALIBRATION_RULE(name, told)
        kind = CURVES[told["method"]]
        each(CURVE_RULES[told["method"]], length=n_curves)(f"{name}: curves", told["curves"])
        curves = tuple(kind(**{key: listed(value) for key, value in curve.items()}) for curve in told["curves"])
        if kind is Isotonic:
            for k, curve in enumerate(curves):
                check_points(f"{name}: curves[{k}]", curve)
        return Calibration(told["method"], curves, told["folds"], told["seed"])


def listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def check_points(name: str, curve: Isotonic) -> None:
    if not len(curve.score) == len(curve.probability) > 0:
        raise InputError(f"{name}: {len(curve.score)} scores and {len(curve.probability)} probabilities")
    rising_numbers(f"{name}: score", np.array(curve.score), strictly=True)
    rising_numbers(f"{name}: probability", np.array([0.0, *curve.probability, 1.0]))


CALIBRATION_RULE: Rule = table(
    {
        "method": choice(*METHODS),
        "folds": whole(2),
        "seed": whole(),
        "curves": each(table({}, others=True)),
    }
)

CURVE_RULES = {
    "sigmoid": table({"slope": number(), "offset": number()}),
    "isotonic": table({"score": each(number()), "probability": each(number())}),
}


def fit(method: str, scores: Floats, y: Int32s, weight: Floats, n_classes: int) -> tuple[Sigmoid | Isotonic, ...]:
    """The curves for decision values of examples whose classes are known."""
    fit_curve = fit_sigmoid if method == "sigmoid" else fit_isotonic
    if scores.ndim == 1:
        return (fit_curve(scores, y == 1, weight),)
    return tuple(fit_curve(scores[:, k], y == k, weight) for k in range(n_classes))


def fit_isotonic(scores: Floats, positive: Any, weight: Floats) -> Isotonic:
    """The curve of least squares among those that never fall; only its corners are kept."""
    at, place = np.unique(scores, return_inverse=True)
    total = np.bincount(place, weight)
    known = total > 0.0
    mean = np.bincount(place, weight * positive)[known] / total[known]
    value = np.clip(isotonic_regression(mean, weights=total[known]).x, 0.0, 1.0)
    at = at[known]
    corner = np.ones(len(at), dtype=np.bool_)
    corner[1:-1] = (value[1:-1] != value[:-2]) | (value[1:-1] != value[2:])
    return Isotonic(tuple(at[corner].tolist()), tuple(value[corner].tolist()))


def fit_sigmoid(scores: Floats, positive: Any, weight: Floats) -> Sigmoid:
    """Platt's sigmoid of least log loss, by Newton's method with step halving (Lin, Lin and Weng, 2007).

    Targets are (n₊ + 1) / (n₊ + 2) and 1 / (n₋ + 2) instead of 1 and 0, so that separable scores give no certainty.
    """
    n_positive, n_negative = float(weight[positive].sum()), float(weight[~positive].sum())
    target = np.where(positive, (n_positive + 1.0) / (n_positive + 2.0), 1.0 / (n_negative + 2.0))
    unit = float(np.abs(scores).max(initial=0.0)) or 1.0
    x = np.stack([scores / unit, np.ones(len(scores))], axis=1)
    b = np.array([0.0, np.log((n_positive + 1.0) / (n_negative + 1.0))])
    loss = log_loss(x @ b, target, weight)
    for _ in range(MOST_STEPS):
        p = expit(x @ b)
        gradient = x.T @ (weight * (p - target))
        hessian = (x * (weight * p * (1.0 - p))[:, None]).T @ x
        hessian += RIDGE * max(1.0, float(np.trace(hessian))) * np.eye(2)
        step, share = np.linalg.solve(hessian, gradient), 1.0
        while share > SETTLED and not (after := log_loss(x @ (b - share * step), target, weight)) <= loss:
            share *= 0.5
        if share <= SETTLED:
            break
        b = b - share * step
        settled, loss = loss - after <= SETTLED * abs(loss), after
        if settled:
            break
    return Sigmoid(float(b[0]) / unit, float(b[1]))


def log_loss(score: Floats, target: Floats, weight: Floats) -> float:
    """Σ weight · (log(1 + exp(score)) − target · score), plus a constant of the targets."""
    entropy = xlogy(target, target) + xlogy(1.0 - target, 1.0 - target)
    return float((weight * (np.logaddexp(0.0, score) - target * score + entropy)).sum())
