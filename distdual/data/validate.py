"""Checks of blocks of examples before they are stored."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.data.data_spec import DataSpec, form_name
from distdual.data.layout import Layout
from distdual.data.shard import Block
from distdual.errors import InputError
from distdual.kernels.rows import CsrRows, Features, Ints


class Form(NamedTuple):
    """What all blocks of a source have in common."""

    width: int | None  # of dense features; None for sparse ones
    labels: str
    columns: tuple[str, ...]
    runs: tuple[str, ...] = ()

    def __str__(self) -> str:
        features = "sparse features" if self.width is None else f"{self.width} dense features"
        return ", ".join([features, f"{self.labels} as labels", *self.columns, *self.runs])


def form_of(block: Block) -> Form:
    labels = {"i": "numbers", "u": "numbers", "f": "numbers", "b": "booleans"}.get(block.y.dtype.kind, "words")
    columns = tuple(name for name in ("cost", "margin") if getattr(block, name) is not None)
    return Form(block.x.width, labels, columns, tuple(block.runs or ()))


def normal_block(block: Block, where: str) -> Block:
    """The block in the types it is stored in, once its parts fit together."""
    n = block.x.n_rows
    if block.tokens is not None:
        check_tokens(block.tokens, n, where)
    for name, expected in (("y", n), ("cost", block.n_examples), ("margin", block.n_examples)):
        column = getattr(block, name)
        if column is not None and column.shape != (expected,):
            what = "rows of features" if expected == n else "sequences"
            raise InputError(f"{where}: {expected} {what}, but {name} has the shape {column.shape}")
    if block.x.width == 0:
        raise InputError(f"{where}: rows without any feature")
    if isinstance(block.x, CsrRows):
        check_csr(block.x, where)
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is reported as such
        x = block.x._replace(values=block.x.values.astype(np.float32, copy=False))
    cost, margin = (None if column is None else column.astype(np.float64) for column in (block.cost, block.margin))
    return Block(x, block.y, cost, margin, block.tokens, block.runs)


def check_examples(block: Block, kind: str, spec: DataSpec, where: str) -> None:
    """Refuse examples of another form than the problem declares."""
    ragged = block.tokens is not None
    if not spec.takes(ragged=ragged, structured=block.structured):
        found = form_name(ragged=ragged, structured=block.structured)
        needed = spec.form
        raise InputError(f"{where}: the source holds {found}, but a {kind} problem needs {needed}")
    if block.tokens is not None and block.margin is not None:
        raise InputError(f"{where}: a margin for each sequence does not apply to a {kind} problem; leave it out")
    if spec.own_format is not None and not block.runs:
        raise InputError(
            f"{where}: a {kind} problem needs {spec.examples}; prepare it from files of format {spec.own_format.name}"
        )


def check_tokens(tokens: Ints, n: int, where: str) -> None:
    """Refuse bounds of sequences that do not cover all rows, and sequences without tokens."""
    if tokens[0] != 0 or tokens[-1] != n or (np.diff(tokens) < 1).any():
        raise InputError(f"{where}: tokens must rise from 0 to the {n} rows of features, one token a sequence at least")


def check_bags(block: Block, where: str, first: int) -> None:
    """A bag has one label, which stands on each of its rows."""
    assert block.tokens is not None
    differ = block.y != np.repeat(block.y[block.tokens[:-1]], np.diff(block.tokens))
    if differ.any():
        row = int(np.argmax(differ))
        bag = int(np.searchsorted(block.tokens, row, side="right")) - 1
        labels = f"{block.y[block.tokens[bag]]} and {block.y[row]}"
        raise InputError(f"{where}, bag {first + bag}: rows with the labels {labels}; a bag has one label, on each row")


def check_csr(x: CsrRows, where: str) -> None:
    """Refuse row ends that are no row ends, columns below zero, and a column named twice in a row."""
    lengths = np.diff(x.indptr)
    ends_well = x.indptr[0] == 0 and x.indptr[-1] == len(x.indices) == len(x.values)
    if not ends_well or (lengths < 0).any():
        raise InputError(f"{where}: indptr does not describe rows of {len(x.values)} values")
    if x.indices.min(initial=0) < 0:
        raise InputError(f"{where}, row {row_of(x, int(np.argmin(x.indices)))}: a feature number is negative")
    rises, ends = np.diff(x.indices) > 0, x.indptr[1:-1]
    rises[ends[(ends > 0) & (ends < len(x.indices))] - 1] = True  # from one row to the next
    if rises.all():
        return
    row = np.repeat(np.arange(len(lengths)), lengths)
    at = x.indices
    if not ((np.diff(at) > 0) | (np.diff(row) > 0)).all():
        at = at[np.lexsort((at, row))]  # sorted within each row; `row` itself stays as it is
    again = (np.diff(at) == 0) & (np.diff(row) == 0)
    if again.any():
        k = int(np.argmax(again))
        raise InputError(f"{where}, row {row[k]}: feature {at[k]} (counted from 0) is named twice")


def row_of(x: CsrRows, k: int) -> int:
    """The row that stored value `k` belongs to."""
    return int(np.searchsorted(x.indptr, k, side="right")) - 1


def check_block(block: Block, where: str, first: int, layout: Layout) -> None:
    """Refuse features, targets, costs and margins that are not finite, and costs below zero."""
    bad_rows(by_example(~finite_rows(block.x), block), where, first, "a feature is NaN or infinite as float32")
    if not layout.labels and block.y.dtype.kind not in "fiub":
        raise InputError(f"{where}: a {layout.kind} problem needs numbers to predict, found {block.y[0]!r}")
    if block.y.dtype.kind == "f":
        bad_rows(by_example(~np.isfinite(block.y), block), where, first, "the label is NaN or infinite")
    for name in layout.columns:
        column = getattr(block, name)
        bad_rows(~np.isfinite(column), where, first, f"the {name} is NaN or infinite")
    if block.cost is not None:
        bad_rows(block.cost < 0, where, first, "the cost is negative")


def by_example(bad: NDArray[np.bool_], block: Block) -> NDArray[np.bool_]:
    """Which examples have a bad row."""
    return bad if block.tokens is None else np.logical_or.reduceat(bad, block.tokens[:-1])


def bad_rows(bad: NDArray[np.bool_], where: str, first: int, what: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"{where}, row {row} (example {first + row}): {what}")


def finite_rows(x: Features) -> NDArray[np.bool_]:
    x = x.trimmed()
    bad = ~np.isfinite(x.values)
    return x.row_sums(bad) == 0 if bad.any() else np.ones(x.n_rows, dtype=np.bool_)


def label_name(label: Any) -> str:
    """A label in its usual spelling: 1, not 1.0."""
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)
