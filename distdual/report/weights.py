"""The largest weights of a linear model, by the names of its features, as a chart."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from distdual.kernels.rows import Floats
from distdual.model.io import Model
from distdual.problems.expanded import Expanded
from distdual.problems.mapped import Mapped
from distdual.report.number_format import format_number
from distdual.report.svg_charts import svg_text

LINEAR_ESTIMATORS = ("SVC", "SVR")  # their models have a weight for each feature, or for each class and feature
MOST_SHOWN = 20  # weights that are shown
WIDTH, ROW, TOP = 360, 18, 4  # of the picture
NAMES, NUMBERS = 150, 52  # the widths of the columns of names and of numbers
LONGEST = 21  # letters of a name that fit there


class Weight(NamedTuple):
    name: str
    value: float


def largest_weights(model: Model, most: int = MOST_SHOWN) -> list[Weight]:
    """The weights of features with the largest |w|, largest first; none for models whose weights are of other things.

    Where features have no names, they are counted from 0, as in error messages. The bias is left out.
    """
    if model.problem.estimator not in LINEAR_ESTIMATORS or isinstance(model.problem, Mapped | Expanded):
        return []
    if model.preprocessing is not None and model.preprocessing.map is not None:
        return []
    about = model.problem.describe()
    n_features, classes = about["n_features"], about["classes"]
    of_class: Floats = model.w.reshape(-1, n_features + (about["bias"] != 0))[:, :n_features]
    names = model.feature_names
    found = []
    for place in np.argsort(-np.abs(of_class), axis=None, kind="stable")[:most].tolist():
        k, j = divmod(place, of_class.shape[1])
        name = f"feature {j}" if names is None else names[j]
        found.append(Weight(f"{classes[k]}: {name}" if len(of_class) > 1 else name, float(of_class[k, j])))
    return [weight for weight in found if weight.value != 0.0]


def weights_chart(weights: Sequence[Weight], note: str = "") -> str:
    """Horizontal bars, to the right for positive weights; names that are too long end with … and have a tooltip."""
    if not weights:
        return ""
    low, high = min(0.0, *(each.value for each in weights)), max(0.0, *(each.value for each in weights))

    def across(value: float) -> float:
        return NAMES + 8 + (WIDTH - NAMES - NUMBERS - 8) * (value - low) / (high - low)

    drawn = [bar(each, TOP + ROW * k, across(0.0), across(each.value)) for k, each in enumerate(weights)]
    height = TOP + ROW * len(weights) + TOP
    zero = f'<line class="grid" x1="{across(0.0):.1f}" x2="{across(0.0):.1f}" y1="{TOP}" y2="{height - TOP}"/>'
    small = f'<p class="soft">{escape(note)}</p>' if note else ""
    picture = (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Largest weights">{zero}{"".join(drawn)}</svg>'
    )
    return f'<figure class="weights"><figcaption>Largest weights</figcaption>{small}{picture}</figure>'


def bar(weight: Weight, y: float, zero: float, end: float) -> str:
    short = weight.name if len(weight.name) <= LONGEST else f"{weight.name[: LONGEST - 1]}…"
    left, width = min(zero, end), max(abs(end - zero), 0.5)
    style = "upper" if weight.value > 0 else "lower"
    tip = f"<title>{escape(weight.name)} {weight.value:.4g}</title>"
    name, value = svg_text(NAMES, y + 13, short, "end"), svg_text(WIDTH - 2, y + 13, signed(weight.value), "end")
    place = f'x="{left:.1f}" width="{width:.1f}" y="{y + 3:.1f}" height="{ROW - 6}"'
    return f'<g>{tip}{name}<rect class="bar {style}" {place}/>{value}</g>'


def signed(value: float) -> str:
    return f"{'−' if value < 0 else ''}{format_number(abs(value))}"
