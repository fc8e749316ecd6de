"""Sequence tagging by a linear chain: one constraint for each wrong tagging ŷ of a sequence, all sharing its slack.

    φ(x, y)   = Σ_t features_t ⊗ e_{y_t}  +  Σ_t e_{y_{t−1} y_t}  +  e_{y_1}  +  e_{y_T}
    loss(y,ŷ) = Σ_t tag_cost[y_t] · [ŷ_t ≠ y_t]                                              (Hamming)

    margin rescaling   l = loss(y, ŷ),   row = φ(x, y) − φ(x, ŷ)
    slack rescaling    l = loss(y, ŷ),   row = loss(y, ŷ) · (φ(x, y) − φ(x, ŷ))

With K tags, w = [emission (n_features, K)] [transitions (K, K), from × to] [start (K)] [end (K)]. Emission weights
lie feature by feature: the K weights of a feature that a token has are neighbours, so that neither dense nor sparse
features ever need a turned copy of w. The key of a constraint is ŷ. Rows are sums of features in single precision.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distdual.config import check_choice
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernel import kernel, specialise
from distdual.problems.base import Constraints, Keys, Offenders, Problem
from distdual.problems.spans import span_counts, span_tags
from distdual.rows import CsrRows, DenseRows, Features, Floats, Int32s, Ints, is_dense


@dataclass(frozen=True, kw_only=True)
class Chain(Problem):
    kind: ClassVar[str] = "chain"
    sequences: ClassVar[bool] = True

    n_features: int
    classes: tuple[str, ...]
    """The tags."""

    transitions: bool = True
    """A weight for each pair of neighbouring tags."""

    boundaries: bool = True
    """A weight for each tag at the start, and at the end, of a sequence."""

    tag_cost: Mapping[str, float] = field(default_factory=dict)
    """What a token adds to the loss if its right tag is missed, by tag; 1 for a tag that is not named."""

    rescaling: str = "margin"
    """"margin" or "slack"; the latter needs the same tag_cost for all tags."""

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise InputError("a chain problem needs a data set with two tags or more")
        check_choice("problem.rescaling", self.rescaling, ["margin", "slack"])
        check_tag_cost(self.tag_cost, self.classes)
        if self.rescaling == "slack" and len(set(self.tag_costs)) > 1:
            raise InputError("problem.rescaling = 'slack' is exact only where all tags have the same problem.tag_cost")

    @property
    def oracle_work(self) -> float:  # type: ignore[override]
        """Viterbi meets all pairs of tags at every token; the ascent reads a few rows of the tokens that differ.

        Measured with 26 tags: 35 µs for a scan of a sequence, 5 to 10 µs for a visit to its constraints.
        """
        return max(0.5, len(self.classes) / 4)

    @property
    def n_weights(self) -> int:  # type: ignore[override]
        n_tags = len(self.classes)
        return n_tags * (self.n_features + n_tags * self.transitions + 2 * self.boundaries)

    @property
    def tag_costs(self) -> Floats:
        return np.array([self.tag_cost.get(tag, 1.0) for tag in self.classes])

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        tokens = bounds_of(shard)
        slack, worst = np.empty(shard.n_examples), np.empty(len(shard.y), dtype=np.int32)
        find = find_slack_rescaled if self.rescaling == "slack" else find_margin_rescaled
        find(shard.x, shard.y, tokens, *self.split(w), self.tag_costs, slack, worst)
        return Offenders(slack, Keys(tokens, worst))

    def costs(self, shard: Shard) -> Floats:
        return np.ones(shard.n_examples) if shard.cost is None else shard.cost.copy()

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        tokens = bounds_of(shard)
        check_keys(tokens, chosen, keys, len(self.classes))
        margin = np.empty(len(chosen))
        find_losses(shard.y, tokens, chosen, keys.indptr, keys.values, self.tag_costs, margin)
        scale = margin if self.rescaling == "slack" else np.ones(len(chosen))
        rows = self._rows(shard, tokens, chosen, keys, scale)
        return Constraints(shard.first + chosen, self.costs(shard)[chosen], margin, rows, keys)

    def _rows(self, shard: Shard, tokens: Ints, chosen: Ints, keys: Keys, scale: Floats) -> CsrRows:
        """scale · (φ(x, y) − φ(x, ŷ)) of each, first into room for the longest they can be."""
        indptr = np.zeros(len(chosen) + 1, dtype=np.int64)
        most = most_values(shard.x, shard.y, tokens, chosen, keys.indptr, keys.values)
        indices = np.empty(most, dtype=np.int32 if self.n_weights < 2**31 else np.int64)
        values = np.empty(most, dtype=np.float32)
        sizes = (len(self.classes), self.n_features, self.transitions, self.boundaries)
        fill_rows(shard.x, shard.y, tokens, chosen, keys.indptr, keys.values, scale, *sizes, indptr, indices, values)
        return CsrRows(indptr, indices[: indptr[-1]].copy(), values[: indptr[-1]].copy())

    def predict(self, w: Floats, shard: Shard) -> NDArray[np.int32]:
        """(n_tokens,) tags, sequence after sequence."""
        predicted = np.empty(len(shard.y), dtype=np.int32)
        find_best(shard.x, bounds_of(shard), *self.split(w), predicted)
        return predicted

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        return {"n": float(len(y)), "accuracy": float((y == predicted).sum())}

    def score_shard(self, shard: Shard, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        tokens = bounds_of(shard)
        right = np.logical_and.reduceat(y == predicted, tokens[:-1]) if len(y) else np.empty(0)
        sums = {"sequence_accuracy": float(right.sum()), "n:sequence_accuracy": float(shard.n_examples)}
        return {**self.score(y, predicted), **sums, **self._span_sums(tokens, y, predicted)}

    def _span_sums(self, tokens: Ints, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        """For tags that mark spans, such as B-NP, I-NP and O: F1 = 2 right / (there + found)."""
        if (tags := span_tags(self.classes)) is None:
            return {}
        right, there, found = map(float, span_counts(tags, tokens, y, predicted))
        return {
            "span_f1": 2 * right,
            "n:span_f1": there + found,
            "span_precision": right,
            "n:span_precision": found,
            "span_recall": right,
            "n:span_recall": there,
        }

    def judge(self, unknown: tuple[str, ...]) -> "Chain":
        """A tag that training has not seen is never predicted, so it is a mistake like any other."""
        return replace(self, classes=(*self.classes, *unknown), tag_cost={})

    def describe(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "n_features": self.n_features,
            "classes": list(self.classes),
            "transitions": self.transitions,
            "boundaries": self.boundaries,
            "tag_cost": dict(self.tag_cost),
            "rescaling": self.rescaling,
        }

    def split(self, w: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Emission, transitions, start and end as views; no transitions are (0, K), no boundaries zeros."""
        n_tags = len(self.classes)
        emission, rest = np.split(w, [n_tags * self.n_features])
        pairs, ends = np.split(rest, [n_tags * n_tags * self.transitions])
        ends = ends if self.boundaries else np.zeros(2 * n_tags)
        return emission.reshape(-1, n_tags), pairs.reshape(-1, n_tags), ends[:n_tags], ends[n_tags:]


def check_tag_cost(tag_cost: Mapping[str, float], classes: tuple[str, ...]) -> None:
    for tag, cost in tag_cost.items():
        if tag not in classes:
            raise InputError(f"problem.tag_cost names {tag!r}, which is no tag of the data set")
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < np.inf:
            raise InputError(f"problem.tag_cost of {tag!r} must be a number of at least 0, got {cost!r}")


def bounds_of(shard: Shard) -> Ints:
    assert shard.tokens is not None  # whoever opened the data set has checked that it holds sequences
    return shard.tokens


def check_keys(tokens: Ints, chosen: Ints, keys: Keys, n_tags: int) -> None:
    """Kernels trust keys; these may come from a file."""
    wrong = np.diff(keys.indptr) != np.diff(tokens)[chosen]
    if wrong.any():
        raise InputError(f"the key of a constraint of sequence {chosen[np.argmax(wrong)]} is not one tag a token")
    if len(keys.values) and not (keys.values.min() >= 0 and keys.values.max() < n_tags):
        raise InputError(f"a key names a tag beyond the {n_tags} there are")


# --- the best tagging


@kernel
def find_margin_rescaled(
    x: Features,
    y: Int32s,
    tokens: Ints,
    emission: Floats,
    pairs: Floats,
    start: Floats,
    end: Floats,
    tag_costs: Floats,
    slack: Floats,
    worst: Int32s,
) -> None:
    """ŷ = argmax loss(y, ŷ) + score(ŷ) of every sequence; fills `slack` and `worst`. NaN features give NaN slack."""
    n_tags = emission.shape[1]
    longest = longest_of(tokens)
    scores, back, forward = np.empty((longest, n_tags)), np.empty((longest, n_tags), np.int32), np.empty((3, n_tags))
    for i in range(len(tokens) - 1):
        first, n = tokens[i], tokens[i + 1] - tokens[i]
        fill_scores(x, first, n, emission, scores)
        right, found = y[first : first + n], worst[first : first + n]
        for t in range(n):
            for k in range(n_tags):
                scores[t, k] += tag_costs[right[t]]
            scores[t, right[t]] -= tag_costs[right[t]]
        best_path(scores, n, pairs, start, end, back, forward, found)
        ahead = ahead_of(scores, pairs, start, end, right, found) if all_finite(scores, n) else np.nan
        slack[i] = 0.0 if ahead <= 0.0 else ahead


@kernel
def find_best(
    x: Features,
    tokens: Ints,
    emission: Floats,
    pairs: Floats,
    start: Floats,
    end: Floats,
    predicted: Int32s,
) -> None:
    """argmax score(ŷ) of every sequence; fills `predicted`."""
    n_tags = emission.shape[1]
    longest = longest_of(tokens)
    scores, back, forward = np.empty((longest, n_tags)), np.empty((longest, n_tags), np.int32), np.empty((3, n_tags))
    for i in range(len(tokens) - 1):
        first, n = tokens[i], tokens[i + 1] - tokens[i]
        fill_scores(x, first, n, emission, scores)
        best_path(scores, n, pairs, start, end, back, forward, predicted[first : first + n])


@kernel
def longest_of(tokens: Ints) -> int:
    longest = 0
    for i in range(len(tokens) - 1):
        longest = max(longest, tokens[i + 1] - tokens[i])
    return longest


def fill_scores(x: Features, first: int, n: int, emission: Floats, scores: Floats) -> None:
    """scores_tk = Σ_j x_tj emission_jk for tokens first … first + n − 1; fills the first n rows of `scores`."""
    for t in range(n):
        if isinstance(x, DenseRows):
            scores[t] = x.values[first + t].astype(np.float64) @ emission
        else:
            at = slice(x.indptr[first + t], x.indptr[first + t + 1])
            scores[t] = x.values[at].astype(np.float64) @ emission[x.indices[at]]


@specialise(fill_scores)
def _fill_scores(x: Any, first: Any, n: Any, emission: Any, scores: Any) -> Any:  # noqa: ARG001
    def dense(x: Any, first: Any, n: Any, emission: Any, scores: Any) -> Any:
        for t in range(n):
            scores[t, :] = 0.0
            for j in range(x.values.shape[1]):
                if x.values[first + t, j] != 0.0:
                    add_scaled(np.float64(x.values[first + t, j]), emission[j], scores[t])

    def csr(x: Any, first: Any, n: Any, emission: Any, scores: Any) -> Any:
        for t in range(n):
            scores[t, :] = 0.0
            for p in range(x.indptr[first + t], x.indptr[first + t + 1]):
                add_scaled(np.float64(x.values[p]), emission[x.indices[p]], scores[t])

    return dense if is_dense(x) else csr


@kernel
def add_scaled(scale: float, row: Floats, out: Floats) -> None:
    """out ← out + scale · row."""
    for k in range(len(out)):
        out[k] += scale * row[k]


@kernel
def best_path(
    scores: Floats, n: int, pairs: Floats, start: Floats, end: Floats, back: Int32s, forward: Floats, path: Int32s
) -> None:
    """Viterbi: the tags of the best path into `path`. `back` and `forward` are scratch, K entries a token and 3 K.

    best_t(k) = scores_t(k) + max_j ( best_{t−1}(j) + pairs(j, k) )
    """
    n_tags = scores.shape[1]
    best, new, at = forward[0], forward[1], forward[2]
    for k in range(n_tags):
        best[k] = start[k] + scores[0, k]
    for t in range(1, n):
        extend(best, pairs, new, at)
        for k in range(n_tags):
            back[t, k] = np.int32(at[k])
            best[k] = new[k] + scores[t, k]
    k = 0
    for j in range(n_tags):
        best[j] += end[j]
        if best[j] > best[k]:
            k = j
    for t in range(n - 1, -1, -1):
        path[t] = k
        k = back[t, k] if t else k


@kernel
def extend(best: Floats, pairs: Floats, new: Floats, at: Floats) -> None:
    """new_k = max_j best_j + pairs_jk, at_k = argmax; both as floats, so that the inner loop runs on whole vectors."""
    n_tags = len(best)
    new[:], at[:] = -np.inf, 0.0
    if not len(pairs):
        top = 0
        for j in range(n_tags):
            if best[j] > best[top]:
                top = j
        new[:], at[:] = best[top], float(top)
        return
    for j in range(n_tags):
        base, row, number = best[j], pairs[j], float(j)
        for k in range(n_tags):
            found = base + row[k]
            better = found > new[k]
            new[k] = found if better else new[k]
            at[k] = number if better else at[k]


@kernel
def all_finite(scores: Floats, n: int) -> bool:
    """Whether the scores of the first n tokens are finite; a NaN would lose every comparison."""
    for t in range(n):
        for k in range(scores.shape[1]):
            if not np.isfinite(scores[t, k]):
                return False
    return True


@kernel
def ahead_of(scores: Floats, pairs: Floats, start: Floats, end: Floats, right: Int32s, found: Int32s) -> float:
    """How far the path found is ahead of the right one, from where they differ only: 0 if they are the same."""
    n = len(right)
    ahead = 0.0
    for t in range(n):
        if found[t] != right[t]:
            ahead += scores[t, found[t]] - scores[t, right[t]]
        if t and len(pairs) and (found[t] != right[t] or found[t - 1] != right[t - 1]):
            ahead += pairs[found[t - 1], found[t]] - pairs[right[t - 1], right[t]]
    return float(ahead + start[found[0]] - start[right[0]] + end[found[n - 1]] - end[right[n - 1]])


# --- slack rescaling


@kernel
def find_slack_rescaled(
    x: Features,
    y: Int32s,
    tokens: Ints,
    emission: Floats,
    pairs: Floats,
    start: Floats,
    end: Floats,
    tag_costs: Floats,
    slack: Floats,
    worst: Int32s,
) -> None:
    """ŷ = argmax loss(y, ŷ) (1 + score(ŷ) − score(y)): the best path with exactly h wrong tags, for each h.

    The loss is h · tag_costs[0]: all tags cost the same. Time and memory grow with the square of the length.
    """
    n_tags = emission.shape[1]
    longest = longest_of(tokens)
    scores, forward = np.empty((longest, n_tags)), np.empty((2, longest + 1, n_tags))
    new, at = np.empty(n_tags), np.empty(n_tags)
    back = np.empty((longest, longest + 1, n_tags), np.int32)
    path = np.empty(longest, np.int32)
    for i in range(len(tokens) - 1):
        first, n = tokens[i], tokens[i + 1] - tokens[i]
        fill_scores(x, first, n, emission, scores)
        right, found = y[first : first + n], worst[first : first + n]
        slack[i] = 0.0
        found[:] = right
        if not all_finite(scores, n):
            slack[i] = np.nan
            continue
        best = forward_by_errors(scores, right, pairs, start, forward, back, new, at)
        for wrong in range(1, n + 1):
            last = best_end(best[wrong], end)
            if best[wrong, last] == -np.inf:
                continue
            follow(back, n, wrong, last, right, path)
            loss = wrong * tag_costs[0]
            value = loss * (1.0 + ahead_of(scores, pairs, start, end, right, path[:n]))
            if value > slack[i]:
                slack[i] = value
                found[:] = path[:n]


@kernel
def forward_by_errors(
    scores: Floats, right: Int32s, pairs: Floats, start: Floats, forward: Floats, back: Int32s, new: Floats, at: Floats
) -> Floats:
    """(h, k) the best score of a path that ends in k with h tags wrong; −∞ where there is none. Fills `back`."""
    n, n_tags = len(right), scores.shape[1]
    old: Floats = forward[0]
    best: Floats = forward[1]
    best[: n + 1] = -np.inf
    for k in range(n_tags):
        best[1 if k != right[0] else 0, k] = start[k] + scores[0, k]
    for t in range(1, n):
        old, best = best, old
        best[: n + 1] = -np.inf
        for wrong in range(t + 1):
            extend(old[wrong], pairs, new, at)
            for k in range(n_tags):
                now = wrong + 1 if k != right[t] else wrong
                best[now, k] = new[k] + scores[t, k]
                back[t, now, k] = np.int32(at[k])
    return best


@kernel
def best_end(best: Floats, end: Floats) -> int:
    last = 0
    for k in range(len(end)):
        if best[k] + end[k] > best[last] + end[last]:
            last = k
    return last


@kernel
def follow(back: Int32s, n: int, wrong: int, last: int, right: Int32s, path: Int32s) -> None:
    """The path that ends in `last` with so many wrong tags."""
    k = last
    for t in range(n - 1, -1, -1):
        path[t] = k
        if t:
            before = back[t, wrong, k]
            wrong -= 1 if k != right[t] else 0
            k = before


# --- rows


@kernel
def find_losses(
    y: Int32s, tokens: Ints, chosen: Ints, key_indptr: Ints, keys: Int32s, tag_costs: Floats, loss: Floats
) -> None:
    """loss_c = Σ_t tag_costs[y_t] [ŷ_t ≠ y_t]; fills `loss`."""
    for c in range(len(chosen)):
        first, at = tokens[chosen[c]], key_indptr[c]
        loss[c] = 0.0
        for t in range(tokens[chosen[c] + 1] - first):
            if keys[at + t] != y[first + t]:
                loss[c] += tag_costs[y[first + t]]


@kernel
def most_values(x: Features, y: Int32s, tokens: Ints, chosen: Ints, key_indptr: Ints, keys: Int32s) -> int:
    """How long all rows can be together: two of each feature of a token that differs, and four a token for the rest."""
    most = 0
    for c in range(len(chosen)):
        first, at = tokens[chosen[c]], key_indptr[c]
        n = tokens[chosen[c] + 1] - first
        most += 2 * n + 4
        for t in range(n):
            if keys[at + t] != y[first + t]:
                most += 2 * n_values(x, first + t)
    return most


def n_values(x: Features, row: int) -> int:
    """How many features a row stores."""
    return x.values.shape[1] if isinstance(x, DenseRows) else int(x.indptr[row + 1] - x.indptr[row])


@specialise(n_values)
def _n_values(x: Any, row: Any) -> Any:  # noqa: ARG001
    def dense(x: Any, row: Any) -> Any:  # noqa: ARG001
        return x.values.shape[1]

    def csr(x: Any, row: Any) -> Any:
        return x.indptr[row + 1] - x.indptr[row]

    return dense if is_dense(x) else csr


@kernel
def fill_rows(
    x: Features,
    y: Int32s,
    tokens: Ints,
    chosen: Ints,
    key_indptr: Ints,
    keys: Int32s,
    scale: Floats,
    n_tags: int,
    n_features: int,
    transitions: bool,
    boundaries: bool,
    indptr: Ints,
    indices: Any,
    values: Any,
) -> None:
    """Rows with ascending columns, each named once, and no zeros; fills indptr, indices and values."""
    room = 0
    for c in range(len(chosen)):
        room = max(room, most_values(x, y, tokens, chosen[c : c + 1], key_indptr[c : c + 1], keys))
    columns, parts = np.empty(room, np.int64), np.empty(room)
    for c in range(len(chosen)):
        first = tokens[chosen[c]]
        n = tokens[chosen[c] + 1] - first
        right, found = y[first : first + n], keys[key_indptr[c] : key_indptr[c] + n]
        size = add_emissions(x, first, right, found, n_tags, columns, parts)
        at = write_merged(columns[:size], parts[:size], scale[c], indptr[c], indices, values)
        size = add_pairs(right, found, n_tags, n_tags * n_features, transitions, boundaries, columns, parts)
        indptr[c + 1] = write_merged(columns[:size], parts[:size], scale[c], at, indices, values)


def add_emissions(
    x: Features, first: int, right: Int32s, found: Int32s, n_tags: int, columns: Ints, parts: Floats
) -> int:
    """+features at the right tag and −features at the one found, for tokens where they differ; returns how many."""
    size = 0
    for t in np.flatnonzero(right != found):
        row = first + t
        if isinstance(x, DenseRows):
            which = np.flatnonzero(x.values[row])
            own = x.values[row][which]
        else:
            at = slice(x.indptr[row], x.indptr[row + 1])
            which, own = x.indices[at].astype(np.int64), x.values[at]
        for tag, sign in ((right[t], 1.0), (found[t], -1.0)):
            columns[size : size + len(which)] = which * n_tags + tag
            parts[size : size + len(which)] = sign * own
            size += len(which)
    return size


@specialise(add_emissions)
def _add_emissions(x: Any, first: Any, right: Any, found: Any, n_tags: Any, columns: Any, parts: Any) -> Any:  # noqa: ARG001
    def dense(x: Any, first: Any, right: Any, found: Any, n_tags: Any, columns: Any, parts: Any) -> Any:
        size = 0
        for j in range(x.values.shape[1]):
            for t in range(len(right)):
                if right[t] != found[t] and x.values[first + t, j] != 0.0:
                    columns[size], parts[size] = j * n_tags + right[t], x.values[first + t, j]
                    columns[size + 1], parts[size + 1] = j * n_tags + found[t], -x.values[first + t, j]
                    size += 2
        return size

    def csr(x: Any, first: Any, right: Any, found: Any, n_tags: Any, columns: Any, parts: Any) -> Any:
        size = 0
        for t in range(len(right)):
            if right[t] != found[t]:
                for p in range(x.indptr[first + t], x.indptr[first + t + 1]):
                    column = np.int64(x.indices[p]) * n_tags
                    columns[size], parts[size] = column + right[t], x.values[p]
                    columns[size + 1], parts[size + 1] = column + found[t], -x.values[p]
                    size += 2
        return size

    return dense if is_dense(x) else csr


@kernel
def add_pairs(
    right: Int32s,
    found: Int32s,
    n_tags: int,
    base: int,
    transitions: bool,
    boundaries: bool,
    columns: Ints,
    parts: Floats,
) -> int:
    """±1 at the transitions, the start and the end of both taggings where they differ; returns how many."""
    n, size = len(right), 0
    if transitions:
        for t in range(1, n):
            if right[t] != found[t] or right[t - 1] != found[t - 1]:
                columns[size], parts[size] = base + right[t - 1] * n_tags + right[t], 1.0
                columns[size + 1], parts[size + 1] = base + found[t - 1] * n_tags + found[t], -1.0
                size += 2
        base += n_tags * n_tags
    if boundaries:
        for t in (0, n - 1):
            if right[t] != found[t]:
                columns[size], parts[size] = base + right[t], 1.0
                columns[size + 1], parts[size + 1] = base + found[t], -1.0
                size += 2
            base += n_tags
    return size


@kernel
def write_merged(columns: Ints, parts: Floats, scale: float, at: int, indices: Any, values: Any) -> int:
    """Sort by column, add up what names the same one, and write what is not 0 from place `at` on; returns the end."""
    order = np.argsort(columns, kind="mergesort")
    k = 0
    while k < len(order):
        column, total = columns[order[k]], 0.0
        while k < len(order) and columns[order[k]] == column:
            total += parts[order[k]]
            k += 1
        if total != 0.0:
            indices[at], values[at] = column, scale * total
            at += 1
    return at
