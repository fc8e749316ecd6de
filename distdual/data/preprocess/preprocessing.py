"""What was done to raw features, as one value that data sets and models store.

A data set keeps it in attributes and texts, a model in model.json and the folder preprocessing/. Where two data sets
have preprocessing with the same fingerprint, features have the same meaning and the same scale.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import google_crc32c

from distdual.data.dataset import Dataset
from distdual.data.layout import COLUMNS, MAP_TEXT, SCALE, VOCABULARY
from distdual.data.prepare_options import SCALES
from distdual.data.preprocess.columns import Columns, columns_from
from distdual.data.preprocess.map_text import StoredMap, map_from
from distdual.data.preprocess.scale import read_factors, scale_columns, scale_rows
from distdual.data.shard import Block
from distdual.data.sources.base import Attached
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rows import Floats

SUBFOLDER = "preprocessing"  # of a model
TEXTS = (VOCABULARY, SCALE, COLUMNS, MAP_TEXT)  # the texts of a data set that belong to it


@dataclass(frozen=True)
class Preprocessing:
    """The scale, the feature templates of text, and the texts with everything that is long."""

    scale: str = "none"
    recipe: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def sums(self) -> dict[str, int]:
        """The crc32c of each text."""
        return {name: google_crc32c.extend(0, text.encode()) for name, text in self.texts.items()}

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint_of(self.scale, self.recipe, self.sums)

    @cached_property
    def factors(self) -> Floats | None:
        """What each feature is divided by, if each has a factor of its own."""
        return read_factors(self.texts[SCALE]) if SCALE in self.texts else None

    @cached_property
    def columns(self) -> Columns | None:
        """The columns of the table that rows came from; None for other sources."""
        return columns_from(self.texts[COLUMNS]) if COLUMNS in self.texts else None

    @cached_property
    def map(self) -> StoredMap | None:
        """The map that makes features of scaled rows, if there is one."""
        return map_from(self.texts[MAP_TEXT]) if MAP_TEXT in self.texts else None

    @cached_property
    def feature_names(self) -> tuple[str, ...] | None:
        """The name of each feature, where features have names."""
        if MAP_TEXT in self.texts:
            return None
        if self.columns is not None:
            return self.columns.feature_names
        return tuple(self.texts[VOCABULARY].split("\n")[:-1]) if VOCABULARY in self.texts else None

    def attached(self, labels: tuple[str, ...] = ()) -> Attached:
        """What a data set that is prepared in the same way keeps."""
        return Attached(dict(self.recipe), dict(self.texts), labels, self.scale)

    def converted(self, block: Block, name: str) -> Block:
        """Raw features as the training data have them: scaled, and mapped if there is a map."""
        found = self._scaled(block, name)
        return found if self.map is None else self.map.mapped(found, name)

    def _scaled(self, block: Block, name: str) -> Block:
        if self.factors is not None:
            return scale_columns(block, self.factors, name)
        return scale_rows(block) if self.scale == "unit-rows" else block

    def describe(self) -> dict[str, Any]:
        """The entry of model.json."""
        return {"fingerprint": self.fingerprint, "scale": self.scale, "recipe": dict(self.recipe), "texts": self.sums}

    def files(self) -> dict[str, bytes]:
        """The files of a model folder."""
        return {text_file(name): text.encode() for name, text in self.texts.items()}


RAW = Preprocessing()


def text_file(text: str) -> str:
    """The file of a model folder that holds a text."""
    return f"{SUBFOLDER}/{text}.{'json' if text in (COLUMNS, MAP_TEXT) else 'txt'}"


def fingerprint_of(scale: str, recipe: Mapping[str, Any], sums: Mapping[str, int]) -> str:
    """Short text that is equal exactly where preprocessing is; "none" where features are as the source has them."""
    if scale == "none" and not recipe and not sums:
        return "none"
    parts = json.dumps([scale, recipe, sums], sort_keys=True).encode()
    return f"{scale} {google_crc32c.extend(0, parts):08x}"


def of_dataset(dataset: Dataset) -> Preprocessing:
    layout = dataset.layout
    return Preprocessing(
        layout.scale, layout.recipe, {name: dataset.texts[name] for name in TEXTS if name in layout.texts}
    )


def dataset_fingerprint(dataset: Dataset) -> str:
    """The fingerprint of a data set's preprocessing, without reading its texts."""
    layout = dataset.layout
    return fingerprint_of(
        layout.scale, layout.recipe, {name: layout.texts[name] for name in TEXTS if name in layout.texts}
    )


def of_model(location: Location, about: Mapping[str, Any]) -> Preprocessing | None:
    """The preprocessing of a model folder with this model.json; None for one that does not record it."""
    told = about.get("preprocessing")
    if told is None:
        return None
    where = f"{location}/model.json: preprocessing"
    if not isinstance(told, dict) or not isinstance(told.get("texts"), dict) or not set(told["texts"]) <= set(TEXTS):
        raise InputError(f"{where} must be a table whose texts are among {', '.join(TEXTS)}")
    if told.get("scale") not in SCALES or not isinstance(told.get("recipe"), dict):
        raise InputError(f"{where} must have a scale, one of {', '.join(SCALES)}, and a recipe")
    texts = {name: location.read(text_file(name)).decode("utf-8", "replace") for name in told["texts"]}
    found = Preprocessing(told["scale"], told["recipe"], texts)
    for name, expected in told["texts"].items():
        if found.sums[name] != expected:
            raise InputError(f"{location}/{text_file(name)}: is not what model.json describes: its checksum differs")
    if found.fingerprint != told.get("fingerprint"):
        raise InputError(f"{where} has the fingerprint {told.get('fingerprint')!r}, expected {found.fingerprint!r}")
    return found


def check_same(expected: Preprocessing, dataset: Dataset, trained_on: str, remedy: str) -> None:
    """Raise unless a data set was prepared as the features that a model was trained on."""
    found = dataset_fingerprint(dataset)
    if found != expected.fingerprint:
        raise InputError(
            f"{dataset.location}: was prepared with {in_words(dataset.layout.scale, dataset.layout.texts, found)}, but "
            f"{trained_on} with {in_words(expected.scale, expected.texts, expected.fingerprint)}; {remedy}"
        )


def in_words(scale: str, texts: Mapping[str, Any], fingerprint: str) -> str:
    """How features were made, for messages."""
    if fingerprint == "none":
        return "unchanged features (scale none)"
    words = ((COLUMNS, "columns"), (VOCABULARY, "a vocabulary"), (MAP_TEXT, "a feature map"))
    named = [word for name, word in words if name in texts]
    return f"{' and '.join([*named, f'scale {scale}'])} (fingerprint {fingerprint})"
