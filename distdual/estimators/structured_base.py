"""The base class of SVMRank, ChainSVM and StructuralSVM: prediction and scores by the problem itself."""

from typing import Any

from sklearn.utils.validation import check_is_fitted

from distdual.cluster.open_executor import open_executor
from distdual.config import ClusterConfig
from distdual.data.dataset import Dataset, check_labelled
from distdual.errors import InputError
from distdual.estimators.base import DualEstimator
from distdual.estimators.inputs import Data, Given
from distdual.model.predict import Part, WantedExtras, add_up, judge_of, predict_shard


class StructuredEstimator(DualEstimator):
    """Base class of estimators that predict with their problem, as `distdual predict` does."""

    def _predict_shards(self, data: Data, *, scored: bool = True, top: int = 0) -> list[Part]:
        """Predicted codes of every shard, with sums for the score if that is wanted and the labels are known."""
        names = tuple(self._problem.describe()["classes"])
        judge = judge_of(self._problem, names, data.classes) if scored else None
        with open_executor(ClusterConfig(), data, self._problem, self.client) as executor:
            executor.publish(0, self._w)
            told = [(judge, WantedExtras(top=top))] * data.n_shards
            return list(executor.map_shards(predict_shard, range(data.n_shards), told))

    def _open(self, path: Any, given: Given) -> Data:
        check_is_fitted(self)
        return self._open_like(path, given)

    def _mean(self, data: Data, name: str) -> float:
        """The mean called `name` in the problem's score."""
        return self._means(data)[name]

    def _means(self, data: Data) -> dict[str, float]:
        """All means of the problem's score."""
        if isinstance(data, Dataset):
            check_labelled(data)
        score = add_up([part.score for part in self._predict_shards(data)])
        if score is None:
            raise InputError(f"{data.location}: contains labels that this {type(self).__name__} was not trained on")
        return score
