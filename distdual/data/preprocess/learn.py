"""Levels, means and spreads of a table's columns, found in one pass over the training rows."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from distdual.data.preprocess.columns import Column, Columns
from distdual.data.preprocess.encode import NO_LEVEL, RowPlace, coded_texts, feature_numbers, floats_of
from distdual.data.preprocess.table_options import TableOptions
from distdual.errors import InputError
from distdual.kernels.rows import Bools, Floats

MEASURED = ("number", "date")  # the kinds of columns that have means
Batches = Iterable[tuple[Any, RowPlace]]  # Arrow record batches


class Learnt(NamedTuple):
    """The features that columns become, and what to divide each by for unit variance."""

    columns: Columns
    deviations: Floats


@dataclass
class ColumnMoments:
    """Mean and spread of the values that are there, in float64, merged batch by batch (Chan, Golub, LeVeque).

    d = μ_b − μ,   S ← S + S_b + d² n n_b / (n + n_b),   μ ← μ + d n_b / (n + n_b)
    """

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0
    n_missing: int = 0
    lowest: float = np.inf
    highest: float = -np.inf

    def add(self, values: Floats) -> None:
        missing = np.isnan(values)
        there = values[~missing] if missing.any() else values
        self.n_missing += len(values) - len(there)
        if not len(there):
            return
        mean = float(there.mean())
        away, total = mean - self.mean, self.n + len(there)
        apart = there - mean
        self.squares += float(np.einsum("i,i->", apart, apart)) + away**2 * self.n * len(there) / total
        self.mean += away * len(there) / total
        self.n = total
        self.lowest, self.highest = min(self.lowest, float(there.min())), max(self.highest, float(there.max()))

    def deviation(self, fill: float) -> float:
        """The standard deviation once `fill` stands where values are missing."""
        if self.lowest == self.highest and (fill == self.lowest or not self.n_missing):
            return 0.0  # exactly, where rounding would leave a little
        total = self.n + self.n_missing
        mean = (self.n * self.mean + self.n_missing * fill) / total
        squares = self.squares + self.n * (self.mean - mean) ** 2 + self.n_missing * (fill - mean) ** 2
        return float(np.sqrt(squares / total))


@dataclass
class Counts:
    """How often each text occurs, or each hash."""

    counts: Counter[Any] = field(default_factory=Counter)
    n: int = 0
    n_missing: int = 0


def learn(
    kinds: Mapping[str, str],
    options: TableOptions,
    batches: Batches,
    training: Callable[[int], Bools | None],
) -> Learnt:
    """What columns of these kinds become; `training(n)` says which of the next n rows count, None for all."""
    hashes = {name: Column(name=name, kind="hash", bits=options.hash_bits) for name in options.hashed}
    found: dict[str, Any] = {
        name: ColumnMoments() if kind in ("number", "date") else Counts() for name, kind in kinds.items()
    }
    for whole, place in batches:
        chosen = training(whole.num_rows)
        batch = whole if chosen is None else whole.filter(chosen)
        for name, kind in kinds.items():
            array = batch.column(name)
            if kind in MEASURED:
                found[name].add(floats_of(name, kind, array, place))
            else:
                count_levels(found[name], name, array, place, hashes.get(name), options.max_levels)
    made = [learnt_column(name, kind, found[name], options) for name, kind in kinds.items()]
    columns = Columns(tuple(made), options.label, options.weight, options.group)
    parts = [deviations(column, found[column.name]) for column in made]
    every = np.concatenate(parts)
    return Learnt(columns, np.where(every > 0, every, 1.0))


def count_levels(counts: Counts, name: str, array: Any, place: RowPlace, hashed: Column | None, most: int) -> None:
    coded = coded_texts(name, array, place)
    there = coded.codes[coded.codes != NO_LEVEL]
    counts.n += len(coded.codes)
    counts.n_missing += len(coded.codes) - len(there)
    occurrences = np.bincount(there, minlength=len(coded.values)).tolist()
    keys = coded.values if hashed is None else feature_numbers(hashed, coded.values).tolist()
    for key, number in zip(keys, occurrences, strict=True):
        if number:
            counts.counts[key] += number
    if hashed is None and len(counts.counts) > most:
        raise InputError(
            f"{place.source}, column {name!r}: more than {most} different values in {counts.n:,} rows; "
            f"is it an identifier? --drop {name}, or --hash {name}, or raise --max-levels"
        )


def learnt_column(name: str, kind: str, found: Any, options: TableOptions) -> Column:
    indicator = options.missing == "indicator" and found.n_missing > 0
    fill = None if options.missing == "refuse" else 0.0
    column = Column(name=name, kind=kind, fill=fill, indicator=indicator)
    if isinstance(found, Counts):
        if kind == "hash":
            return replace(column, bits=options.hash_bits)
        if not found.counts:
            raise InputError(f"column {name!r} has no values in the training rows; leave it out: --drop {name}")
        return replace(column, levels=tuple(sorted(found.counts)))
    if not found.n:
        raise InputError(f"column {name!r} has no values in the training rows; leave it out: --drop {name}")
    origin = float(np.floor(found.lowest)) if kind == "date" else 0.0
    return replace(column, fill=found.mean - origin if options.missing == "mean" else fill, origin=origin)


def deviations(column: Column, found: Any) -> Floats:
    """The standard deviation of each of a column's features."""
    if isinstance(found, ColumnMoments):
        own = [found.deviation((column.fill or 0.0) + column.origin)]
        total = found.n + found.n_missing
    else:
        keys = column.levels if column.kind == "levels" else range(1 << column.bits)
        own = [share_deviation(found.counts[key], found.n) for key in keys]
        total = found.n
    return np.array([*own, *([share_deviation(found.n_missing, total)] if column.indicator else [])])


def share_deviation(k: int, n: int) -> float:
    """The standard deviation of a feature that is 1 in k of n rows and 0 in the others."""
    return float(np.sqrt(k / n * (1 - k / n)))
