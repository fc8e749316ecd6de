"""Which arrays make up a data set, and what is chunk s of each?

A data set is a Zarr v3 group in which chunk s of every array is shard s. Every array runs along one *axis*: one
entry per example, one per stored value or, where examples are sequences, one per token. A chunk has the same length
for every shard (`Layout.chunk`); the real length of each axis in each shard is in the small array `lengths`, and what
lies beyond is padding. A data set made of text also has the array `vocabulary`: the names of the features in UTF-8, a
name a line. Readers that do not know of it need not.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

FORMAT = 2  # the newest; data whose examples are no sequences are written as format 1
ATTRIBUTES = "distdual"  # the group attribute that holds all of ours

Axis = Literal["example", "value", "token"]
AXES: tuple[Axis, ...] = ("example", "value", "token")

LENGTHS = "lengths"  # (n_shards, len(Layout.axes)) int64
NORMS = "largest_norm"  # (n_shards,) float64: the largest ||x_i|| of a shard
CHECKSUMS = "checksum"  # (n_shards,) uint32: crc32c over the shard's arrays in the order of `Layout.arrays`
TABLE_CHUNK = 1 << 16  # shards per chunk of these three


class ArraySpec(NamedTuple):
    name: str
    dtype: str
    axis: Axis
    width: int = 0  # columns; 0 for a flat array
    extra: int = 0  # entries beyond the axis: 1 for an indptr


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """All that is the same for every shard; stored as the group's attributes."""

    kind: str  # the problem it was prepared for
    n_features: int
    sparse: bool
    index_dtype: str  # of sparse column numbers
    labels: tuple[str, ...]  # the names of classes 0, 1, …; none for regression
    columns: tuple[str, ...]  # optional per-example columns present: "cost", "margin"
    chunk: dict[Axis, int]  # longest axis a shard may have
    compress: bool
    ragged: bool = False  # an example is a run of tokens, each with features and a label of its own
    text: dict[str, Any] = field(default_factory=dict)  # how features were made of text, where they were

    @property
    def axes(self) -> tuple[Axis, ...]:
        return AXES if self.ragged else AXES[:2]

    @property
    def arrays(self) -> list[ArraySpec]:
        """The arrays, in the order in which they are read, written and summed up."""
        row: Axis = "token" if self.ragged else "example"
        if self.sparse:
            features = [
                ArraySpec("indptr", "int64", row, extra=1),
                ArraySpec("indices", self.index_dtype, "value"),
                ArraySpec("values", "float32", "value"),
            ]
        else:
            features = [ArraySpec("x", "float32", row, width=self.n_features)]
        y = ArraySpec("y", "int32" if self.labels else "float64", row)
        tokens = [ArraySpec("tokens", "int64", "example", extra=1)] if self.ragged else []
        return [*features, y, *tokens, *(ArraySpec(name, "float64", "example") for name in self.columns)]

    def chunk_shape(self, spec: ArraySpec) -> tuple[int, ...]:
        length = self.chunk[spec.axis] + spec.extra
        return (length, spec.width) if spec.width else (length,)

    def attributes(self) -> dict[str, Any]:
        optional = {"ragged": self.ragged, "text": self.text}
        return {
            "format": 2 if self.ragged else 1,
            "kind": self.kind,
            "n_features": self.n_features,
            "features": "csr" if self.sparse else "dense",
            "index_dtype": self.index_dtype,
            "labels": list(self.labels),
            "columns": list(self.columns),
            "chunk": self.chunk,
            "compress": self.compress,
            **{name: value for name, value in optional.items() if value},
        }

    @staticmethod
    def from_attributes(attributes: dict[str, Any]) -> "Layout":
        return Layout(
            kind=attributes["kind"],
            n_features=attributes["n_features"],
            sparse=attributes["features"] == "csr",
            index_dtype=attributes["index_dtype"],
            labels=tuple(attributes["labels"]),
            columns=tuple(attributes["columns"]),
            chunk=attributes["chunk"],
            compress=attributes["compress"],
            ragged=attributes.get("ragged", False),
            text=attributes.get("text", {}),
        )
