"""SVMRank: linear ranking of documents within queries, with a proven gap."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from distdual.data.shard import Block
from distdual.errors import InputError
from distdual.estimators.inputs import Data, Given, is_path, single_rows, weights_of
from distdual.estimators.linear import ScoringEstimator
from distdual.estimators.structured_base import StructuredEstimator
from distdual.kernels.rows import Floats
from distdual.problems.ranking.problem import Ranking


@dataclass(eq=False, repr=False, kw_only=True)
class SVMRank(ScoringEstimator, StructuredEstimator):
    """A linear ranking of documents, with a proven gap.

        P(w) = 1/2 ||w||² + C Σ_q weight_q / Z_q Σ_{y_i > y_j} g_ij max(0, 1 − ⟨w, x_i − x_j⟩)

    The inner sum is over the pairs of documents of query q with different labels, and Z_q is the sum of their g_ij.
    X has a row for each document, y its relevance, and `qid` names its query; without `qid` all rows are one query. The
    rows of a query may stand anywhere. Or X is the path or URL of a data set. `query_weight` has an entry for each
    query, in the order in which they first appear. Parameters in addition to those of DualEstimator:

    - `gain`: what a swapped pair costs: "none", 1; "linear", y_i − y_j; "exponential", 2^y_i − 2^y_j
    - `normalise`: False for Z_q = 1

    Attributes after `fit`: `coef_` (n_features,) and those of DualEstimator. `predict` gives scores: the higher, the
    better the rank.
    """

    gain: str = "none"
    normalise: bool = True

    def fit(self, X: Any, y: Any = None, qid: Any = None, query_weight: Any = None) -> Self:
        """Train on arrays X and y, or on the data set at the path or URL X."""
        return self._fit(X, Given(y, query_weight, qid=qid))

    def predict(self, X: Any) -> Floats:
        """(n,) a score for each document."""
        return self._decide(X)

    def score(self, X: Any, y: Any = None, qid: Any = None) -> float:
        """The share of pairs in the right order, the mean over queries; X may be the path or URL of a data set."""
        given = Given(y, qid=qid)
        data = self._open(X, given) if is_path(X) else self._dataset(self._block(X, given, first=False, keep=False))
        found = self._means(data)
        if "pairwise_accuracy" not in found:
            raise InputError("no query has two documents with different labels: there is no order to score")
        return found["pairwise_accuracy"]

    def _block(self, X: Any, given: Given, *, first: bool, keep: bool) -> Block:
        x, y = single_rows(self, X, given.y, reset=first, keep=keep, y_numeric=True)
        order, tokens = by_query(given.qid, len(y))
        block = Block(x, np.array(y, dtype=np.float64), None, None, None)
        if (np.diff(order) != 1).any():
            block = block.take(order)
        return block._replace(cost=weights_of(given.sample_weight, len(tokens) - 1), tokens=tokens)

    def _learn_classes(self, found: Any) -> None:
        """Relevance has no classes."""

    def _problem_for(self, data: Data) -> Ranking:
        return Ranking(n_features=data.n_features, classes=data.classes, gain=self.gain, normalise=bool(self.normalise))

    def _set_weights(self, w: Floats, problem: Any) -> None:  # noqa: ARG002
        self.coef_ = w.copy()

    def _scores(self, X: Any) -> Floats:
        scores: Floats = np.asarray(X @ self.coef_)
        return scores


def by_query(qid: Any, n: int) -> tuple[Any, Any]:
    """The rows in the order of their queries, those in the order of their first rows; and where each query begins."""
    if qid is None:
        return np.arange(n), np.array([0, n])
    ids = np.asarray(qid)
    if ids.shape != (n,):
        raise InputError(f"qid must name the query of each of {n} rows, found shape {ids.shape}")
    if ids.dtype.kind == "f" and np.isnan(ids).any():
        raise InputError(f"qid of row {int(np.argmax(np.isnan(ids)))} is not a number; every row needs a query")
    _, first, inverse, count = np.unique(ids, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first[inverse], kind="stable")
    return order, np.concatenate([[0], np.cumsum(count[np.argsort(first)])])
