"""The layout of a stored data set: its arrays, and the shape of chunk s of each.

A data set is a Zarr v3 group in which chunk s of every array is shard s. Every array runs along one *axis*: one
entry per example, one per stored value or, where examples are sequences, one per token. A column of *runs*, such as
the trees of parsing, gives each example some numbers of its own, as many as it needs, and is an axis for itself. A
chunk has the same length for every shard (`Layout.chunk`); the real length of each axis in each shard is in the small
array `lengths`, and what lies beyond is padding.

What belongs to all examples and may be large, such as a grammar or the names of all features, is a *text*: an array
of its own, of UTF-8 bytes.

The objects of array x are x/c/0, x/c/1, … or x/c.0, x/c.1, …: Zarr allows both. A data set that replaces another takes
the names that the other does not, so that each is whole until zarr.json, replaced by one write, names the new one.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

FORMAT = 5  # the newest, see `Layout.format`
ATTRIBUTES = "distdual"  # the group attribute that holds all of ours

Axis = str  # one of AXES, or the name of a column of runs
AXES: tuple[Axis, ...] = ("example", "value", "token")

LENGTHS = "lengths"  # (n_shards, len(Layout.axes)) int64
NORMS = "largest_norm"  # (n_shards,) float64: the largest ||x_i|| of a shard
CHECKSUMS = "checksum"  # (n_shards,) uint32: crc32c over the shard's arrays in the order of `Layout.arrays`
TABLE_CHUNK = 1 << 16  # shards per chunk of these three
TABLE_DIMENSIONS = {LENGTHS: ("shard", "axis"), NORMS: ("shard",), CHECKSUMS: ("shard",)}
SEPARATORS = ("/", ".")  # of the numbers in the names of chunks
TEXT_CHUNK = 1 << 22  # bytes per chunk of a text
VOCABULARY = "vocabulary"  # the text that names the features, one a line
SCALE = "scale"  # the text that holds what each column was divided by, one a line
COLUMNS = "columns"  # the text that tells how the columns of a table became features, as JSON
MAP_TEXT = "map"  # the text that holds the map from raw features to those stored, as JSON
STRUCTURES = "structures"  # the kind of data sets for problems of a user's own
SHAPE = "_shape"  # ends the name of the column that holds the shapes of another
RUN_DTYPES = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float32", "float64", "bool"),
)


class ArraySpec(NamedTuple):
    name: str
    dtype: str
    axis: Axis
    width: int = 0  # columns; 0 for a flat array
    extra: int = 0  # entries beyond the axis: 1 for an indptr
    separator: str = "/"

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Zarr's dimension_names, by which xarray tells which arrays run along the same axis."""
        rows = f"{self.axis}_bound" if self.extra else self.axis
        return (rows, "feature") if self.width else (rows,)

    def chunk_key(self, shard: int) -> str:
        """The name of the object that holds a shard's part."""
        numbers = ("c", str(shard), "0") if self.width else ("c", str(shard))
        return f"{self.name}/{self.separator.join(numbers)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Properties shared by all shards; stored as the group's attributes."""

    kind: str  # the problem it was prepared for
    n_features: int
    sparse: bool
    index_dtype: str  # of sparse column numbers
    labels: tuple[str, ...]  # the names of classes 0, 1, …; none for regression
    columns: tuple[str, ...]  # optional per-example columns present: "cost", "margin"
    chunk: dict[Axis, int]  # longest axis a shard may have
    compress: bool
    ragged: bool = False  # an example is a run of tokens, each with features and a label of its own
    unlabelled: bool = False  # there are no labels: rows to predict
    structured: bool = False  # an example is made of columns of runs alone, see data/structures.py
    runs: dict[str, str] = field(default_factory=dict)  # dtype of each column of runs
    texts: dict[str, int] = field(default_factory=dict)  # crc32c of each text
    recipe: dict[str, Any] = field(default_factory=dict)  # how templates made features of text, where they did
    scale: str = "none"  # what `prepare` divided features by; factors of columns are the text SCALE
    separator: str = "/"  # one of SEPARATORS; not an attribute, as Zarr's description of each array tells it

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (*(AXES if self.ragged else AXES[:2]), *self.runs)

    @property
    def arrays(self) -> list[ArraySpec]:
        """The arrays, in the order in which they are read, written and summed up."""
        row: Axis = "token" if self.ragged else "example"
        if self.structured:
            features = []
        elif self.sparse:
            features = [
                ArraySpec("indptr", "int64", row, extra=1),
                ArraySpec("indices", self.index_dtype, "value"),
                ArraySpec("values", "float32", "value"),
            ]
        else:
            features = [ArraySpec("x", "float32", row, width=self.n_features)]
        y = [] if self.structured or self.unlabelled else [ArraySpec("y", "int32" if self.labels else "float64", row)]
        tokens = [ArraySpec("tokens", "int64", "example", extra=1)] if self.ragged else []
        columns = [ArraySpec(name, "float64", "example") for name in self.columns]
        runs = [
            spec
            for name, dtype in self.runs.items()
            for spec in (ArraySpec(f"{name}_indptr", "int64", "example", extra=1), ArraySpec(name, dtype, name))
        ]
        every = [*features, *y, *tokens, *columns, *runs]
        return [spec._replace(separator=self.separator) for spec in every]

    @property
    def format(self) -> int:
        """5 without labels, 4 for structures, 3 with runs or texts, 2 with other sequences, 1 without."""
        if self.unlabelled or self.structured:
            return 5 if self.unlabelled else 4
        return 3 if self.runs or self.texts else 2 if self.ragged else 1

    @property
    def numbering(self) -> str | None:
        """An identifier of the numbering of features; None where it is unknown."""
        if VOCABULARY in self.texts:
            return f"vocabulary {self.texts[VOCABULARY]:08x}"
        return f"hash of {self.recipe['hash_bits']} bits" if "hash_bits" in self.recipe else None

    def chunk_shape(self, spec: ArraySpec) -> tuple[int, ...]:
        length = self.chunk[spec.axis] + spec.extra
        return (length, spec.width) if spec.width else (length,)

    def attributes(self) -> dict[str, Any]:
        newer = {"ragged": self.ragged, "runs": self.runs, "texts": self.texts, "recipe": self.recipe}
        newer |= {"scale": self.scale} if self.scale != "none" else {}
        newer |= {"unlabelled": self.unlabelled}
        return {
            "format": self.format,
            "kind": self.kind,
            "n_features": self.n_features,
            "features": "none" if self.structured else "csr" if self.sparse else "dense",
            "index_dtype": self.index_dtype,
            "labels": list(self.labels),
            "columns": list(self.columns),
            "chunk": self.chunk,
            "compress": self.compress,
            **{name: value for name, value in newer.items() if value},
        }

    @staticmethod
    def from_attributes(attributes: dict[str, Any]) -> "Layout":
        return Layout(
            kind=attributes["kind"],
            n_features=attributes["n_features"],
            sparse=attributes["features"] != "dense",
            structured=attributes["features"] == "none",
            index_dtype=attributes["index_dtype"],
            labels=tuple(attributes["labels"]),
            columns=tuple(attributes["columns"]),
            chunk=attributes["chunk"],
            compress=attributes["compress"],
            ragged=attributes.get("ragged", False),
            unlabelled=attributes.get("unlabelled", False),
            runs=attributes.get("runs", {}),
            texts=attributes.get("texts", {}),
            recipe=attributes.get("recipe", {}),
            scale=attributes.get("scale", "none"),
        )
