"""The preprocessing of a stored data set or model, and what else data that are prepared like it need to know."""

from typing import NamedTuple

from distdual.data.dataset import open_dataset
from distdual.data.preprocess.preprocessing import Preprocessing, of_dataset, of_model
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.json_floats import parsed_json


class Like(NamedTuple):
    """What a data set or a model fixes for data that are prepared like it."""

    name: str
    preprocessing: Preprocessing
    labels: tuple[str, ...]
    n_features: int  # of rows before a map


def read_like(place: Location) -> Like:
    """The preprocessing of the data set or the model at `place`."""
    if not place.exists("model.json"):
        dataset = open_dataset(place)
        made = of_dataset(dataset)
        return Like(str(place), made, dataset.layout.labels, features_before_map(made, dataset.n_features))
    try:
        about = parsed_json(place.read("model.json"))
        found = of_model(place, about)
        labels, n_features = tuple(map(str, about["problem"]["classes"])), int(about["problem"]["n_features"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{place}/model.json: is damaged ({error})") from None
    if found is None:
        raise InputError(f"{place}: the model does not record how its data were prepared; name the data set instead")
    return Like(str(place), found, labels, features_before_map(found, n_features))


def features_before_map(made: Preprocessing, n_features: int) -> int:
    """The number of features before a map, if there is one."""
    return n_features if made.map is None else made.map.feature_map.n_inputs


def features_after_map(made: Preprocessing, n_features: int) -> int:
    """The number of features after a map, if there is one."""
    return n_features if made.map is None else made.map.feature_map.width
