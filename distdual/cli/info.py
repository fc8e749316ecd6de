"""The description of a data set, a model or a checkpoint at a path or URL."""

from typing import Any

from distdual.coordinator.checkpoint import describe_checkpoint
from distdual.data.dataset import Dataset, open_dataset
from distdual.data.preprocess.preprocessing import RAW, Preprocessing, of_dataset
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.model.io import CHECKPOINT, MANIFEST, Model, load_model, read_about, read_certificate
from distdual.model.replace_files import current
from distdual.problems.ranking.problem import Ranking
from distdual.problems.registry import is_own


def describe(location: Location) -> dict[str, Any]:
    location = current(location)
    if location.exists("model.json"):
        about = read_about(location)
        own = isinstance(about.get("problem"), dict) and is_own(about["problem"].get("kind"))
        return describe_own(location, about) if own else describe_model(load_model(location))
    if location.exists("zarr.json"):
        return describe_dataset(open_dataset(location))
    for folder in (location, location / CHECKPOINT):
        if folder.exists(MANIFEST):
            return describe_checkpoint(folder)
    if any((location / part).exists("zarr.json") for part in ("train", "test")):
        open_dataset(location)  # says where they are
    raise InputError(
        f"{location}: not a data set, a model or a checkpoint: no zarr.json, no model.json and no {MANIFEST}; "
        "`distdual prepare` writes data sets, `distdual train` models"
    )


def describe_dataset(dataset: Dataset) -> dict[str, Any]:
    layout = dataset.layout
    examples, rows = ("queries", "documents") if layout.kind == Ranking.kind else ("examples", "tokens")
    return {
        "what": "data set",
        "kind": layout.kind,
        examples: dataset.n_examples,
        **({rows: dataset.n_rows} if layout.ragged else {}),
        "features": layout.n_features,
        "storage": "sparse" if layout.sparse else "dense",
        "values": dataset.n_values,
        "labels": "none: rows to predict" if layout.unlabelled else list(dataset.classes),
        **describe_recipe(layout.recipe, layout.n_features),
        "columns": [*layout.columns, *layout.runs],
        **({"texts": list(layout.texts)} if layout.texts else {}),
        **describe_preprocessing(of_dataset(dataset)),
        "shards": dataset.n_shards,
        "bytes": dataset.nbytes,
        "largest_norm": float(dataset.largest_norm.max()),
        "fingerprint": dataset.fingerprint,
    }


def describe_preprocessing(made: Preprocessing) -> dict[str, Any]:
    """The scale, the map and the names of features, where they were changed and have names."""
    names = list(made.feature_names or ())
    scale = {} if made.scale == "none" else {"scale": made.scale}
    scale |= {} if made.map is None else {"map": made.map.describe()}
    return {**scale, "feature_names": names} if names else scale


def describe_recipe(recipe: dict[str, Any], n_features: int) -> dict[str, Any]:
    """The feature templates, and how features are numbered."""
    if not recipe:
        return {}
    names = f"{n_features:,} features, min_count {recipe.get('min_count', 1)}"
    return {
        "templates": recipe["templates"],
        "vocabulary": f"none, a hash of {recipe['hash_bits']} bits" if "hash_bits" in recipe else names,
    }


def describe_model(model: Model) -> dict[str, Any]:
    certificate = {name: value for name, value in model.certificate.items() if name != "sha256"}
    return {
        "what": "model",
        "problem": model.problem.describe(),
        "C": model.C,
        "weights": len(model.w),
        "support": model.dual.support,
        **describe_preprocessing(model.preprocessing or RAW),
        "data": {"url": model.data.url, "examples": model.data.n_examples, "shards": len(model.data.checksum)},
        "certificate": certificate,
    }


def describe_own(location: Location, about: dict[str, Any]) -> dict[str, Any]:
    """Describe a model of a user's own problem from its files alone, without running the user's code."""
    certificate = {name: value for name, value in read_certificate(location).items() if name != "sha256"}
    return {"what": "model", "problem": about["problem"], "C": about.get("C"), "certificate": certificate}
