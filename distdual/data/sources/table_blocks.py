"""Blocks of examples from tables, and the first pass that finds out what their columns become."""

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from distdual.data.layout import COLUMNS
from distdual.data.prepare_options import Options, TestMask
from distdual.data.preprocess.columns import Column, Columns
from distdual.data.preprocess.encode import RowPlace, Unseen, coded_texts, column_labels, encode, floats_of
from distdual.data.preprocess.learn import Learnt, learn
from distdual.data.preprocess.table_options import NUMBER, TableOptions, plain_type, read_types
from distdual.data.shard import Block
from distdual.data.sources.base import Attached, Opened, Source
from distdual.data.sources.read_ahead import read_ahead
from distdual.data.sources.sequences import Names, TokenRun, whole_sequences
from distdual.data.sources.spooled import spooled
from distdual.data.sources.tables import Table
from distdual.errors import InputError
from distdual.kernels.rows import Bools

log = logging.getLogger(__name__)


def new_tables(tables: Sequence[Table], table_options: TableOptions, options: Options) -> Opened:
    """The examples of tables, whose columns define the features."""
    kinds = table_options.kinds(tables[0].types, tables[0].name)
    wanted = {name: plain_type(kind) for name, kind in kinds.items()}
    if options.scale != "unit-variance" and table_options.missing == "refuse" and set(kinds.values()) == {NUMBER}:
        others = table_options.others
        plain = tuple(Column(name=name) for name in kinds)
        learnt = Learnt(Columns(plain, others.get("label"), others.get("weight"), others.get("group")), np.ones(0))
    else:
        mask = TestMask(options)

        def training(n: int) -> Bools | None:
            return ~mask.next(n) if options.test_fraction else None

        tables = [
            spooled(table, {**wanted, **other_types(table, table_options)}) if table.text else table for table in tables
        ]
        learnt = learn(kinds, table_options, placed(tables, wanted), training)
    opened = known_tables(tables, learnt.columns)
    factors = learnt.deviations if options.scale == "unit-variance" else None
    return opened._replace(attached=Attached(texts={COLUMNS: learnt.columns.to_text()}), factors=factors)


def other_types(table: Table, table_options: TableOptions) -> dict[str, str]:
    """The columns that hold no features, and what each is read as, as `read_types` has it."""
    return {name: table.types[name] for name in table_options.others.values() if name in table.types}


def known_tables(tables: Sequence[Table], columns: Columns, *, labelled: bool = True) -> Opened:
    """The examples of tables with columns that are known; without labels, if wanted, where there is no such column."""
    return Opened([source_of(table, columns, labelled=labelled) for table in tables], Attached())


def source_of(table: Table, columns: Columns, *, labelled: bool) -> Source:
    label, weight = columns.label, columns.weight
    if not labelled:
        label = label if label in table.types else None
        weight = weight if weight in table.types else None
    wanted = read_types(columns, table.types, label=label, weight=weight)

    def blocks() -> Iterator[Block]:
        parts = grouped_blocks(table, columns, wanted, label, weight)
        return whole_sequences(parts) if columns.group else (part.block for part in parts)

    return Source(table.name, blocks, columns.n_features)


def placed(tables: Sequence[Table], wanted: dict[str, str]) -> Iterator[tuple[Any, RowPlace]]:
    """The record batches of all tables, each with where it is from."""
    for table in tables:
        first = 0
        for batch in read_ahead(table.read(wanted)):
            yield batch, RowPlace(table.name, first)
            first += batch.num_rows


def grouped_blocks(
    table: Table, columns: Columns, wanted: dict[str, str], label: str | None, weight: str | None
) -> Iterator[TokenRun]:
    """Blocks of rows, and where a new group begins."""
    sequences = Names()
    unseen: Unseen = {}
    for batch, place in placed([table], wanted):
        if not batch.num_rows:
            continue
        known = len(unseen)
        x = encode(columns, batch, place, unseen)
        for name in list(unseen)[known:]:
            log.warning(
                "%s: column %r has values that the training rows lack, such as %r; no feature stands for them",
                table.name,
                name,
                unseen[name],
            )
        y = np.zeros(batch.num_rows) if label is None else column_labels(label, batch.column(label), place)
        cost = None if weight is None else floats_of(weight, "number", batch.column(weight), place)
        if cost is not None and np.isnan(cost).any():
            raise place.refuse(str(weight), int(np.argmax(np.isnan(cost))), "the weight is missing")
        begins = np.zeros(batch.num_rows, dtype=np.bool_)
        if columns.group:
            groups = coded_texts(columns.group, batch.column(columns.group), place)
            names = np.array([*groups.values, ""])[groups.codes]
            begins = sequences.begins(names, partial(place.refuse, columns.group))
        yield TokenRun(Block(x, y, cost), begins)


def check_grouped(columns_group: str | None, kind: str, *, ragged: bool, weight: str | None) -> None:
    """A group names a sequence or a bag, which some problems need and others cannot use."""
    if ragged and columns_group is None:
        raise InputError(f"a {kind} problem learns from groups of rows: name the column that names them with --group")
    if not ragged and columns_group is not None:
        raise InputError(f"a {kind} problem learns from single rows; leave --group out")
    if ragged and weight is not None:
        raise InputError(f"a {kind} problem takes no weight for each row; leave --weight out")
