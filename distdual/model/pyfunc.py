"""Models as MLflow loads them: an object with `predict`, made of a model folder."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distdual.model.io import load_model


class PyfuncModel:
    """Predicts rows as the estimator of the model does: raw rows, as before `prepare`."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> NDArray[Any]:
        """A prediction for each row of a data frame or an array; there are no `params`."""
        if params:
            raise ValueError(f"a distdual model takes no params, got {', '.join(params)}")
        named = hasattr(self.estimator, "feature_names_in_")
        return np.asarray(self.estimator.predict(model_input if named else as_array(model_input)))


def as_array(rows: Any) -> Any:
    """The values of a data frame, for a model whose features have no names."""
    return rows.to_numpy() if hasattr(rows, "columns") else rows


def _load_pyfunc(path: str) -> PyfuncModel:
    """What MLflow calls."""
    return PyfuncModel(load_model(path).to_estimator())
