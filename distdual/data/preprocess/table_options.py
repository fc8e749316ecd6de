"""Options of `prepare` for tables: which columns mean what, and what becomes of texts and missing values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distdual.config import check_choice
from distdual.data.preprocess.columns import MISSING_RULES, MOST_BITS, Columns
from distdual.errors import InputError

MAX_LEVELS = 1000  # an identifier has as many values as rows; few categories have more than this
HASH_BITS = 12

DATE, NUMBER, BOOLEAN, TEXT, OTHER = "date", "number", "boolean", "text", "other"  # what a column holds


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """How to read a table."""

    label: str | None = None
    """The column of labels or targets."""

    features: Sequence[str] = ()
    """The columns of features; by default all others."""

    drop: Sequence[str] = ()
    """Columns to leave out."""

    weight: str | None = None
    """The column of costs: what a unit of a row's slack costs, before C."""

    group: str | None = None
    """The column that names the sequence or the bag that a row belongs to; its rows follow each other."""

    missing: str = "refuse"
    """Missing values: "refuse" them; or take the "mean" or "zero"; or zero and an "indicator" feature.

    The mean is that of the training rows. In a column of texts all but "refuse" mean that no level's feature is 1.
    """

    categorical: Sequence[str] = ()
    """Columns of numbers, such as codes, whose values become features of their own, as those of texts do."""

    hashed: Sequence[str] = ()
    """Columns of texts whose values become features by their hash, for more values than a first pass should store."""

    hash_bits: int = HASH_BITS
    """A hashed column becomes 2^hash_bits features."""

    max_levels: int = MAX_LEVELS
    """A column of texts with more values than this is refused: it may be an identifier."""

    def __post_init__(self) -> None:
        check_choice("missing", self.missing, MISSING_RULES)
        for name in ("features", "drop", "categorical", "hashed"):
            if isinstance(given := getattr(self, name), str):
                object.__setattr__(self, name, tuple(given.split(",")))
        if not 1 <= self.hash_bits <= MOST_BITS:
            raise InputError(f"hash_bits must be from 1 to {MOST_BITS}, got {self.hash_bits}")
        if self.max_levels < 1:
            raise InputError(f"max_levels must be positive, got {self.max_levels}")
        for name in set(self.drop) & {self.label, self.weight, self.group, *self.features}:
            raise InputError(f"column {name!r} is dropped and used at the same time")

    @property
    def others(self) -> dict[str, str]:
        """The columns that hold no features, by what they hold."""
        given = {"label": self.label, "weight": self.weight, "group": self.group}
        return {what: name for what, name in given.items() if name is not None}

    def kinds(self, types: Mapping[str, str], where: str) -> dict[str, str]:
        """The columns of features, in order, each a kind of `Column`; `types` are those that the table has."""
        if self.label is None:
            raise InputError(f"{where}: name the column of labels with --label; the columns are {first_columns(types)}")
        named = [*self.others.values(), *self.features, *self.drop, *self.categorical, *self.hashed]
        for name in named:
            if name not in types:
                raise InputError(f"{where}: there is no column {name!r}; the columns are {first_columns(types)}")
        left_out = {*self.others.values(), *self.drop}
        if "" in types and "" not in {*left_out, *self.features}:
            raise InputError(
                f"{where}: a column has no name, such as the index that pandas writes without index=False; "
                f"leave it out, --drop '', or name it"
            )
        chosen = [name for name in (self.features or types) if name not in left_out]
        if not chosen:
            raise InputError(f"{where}: no column is left for features")
        return {name: self.kind_of(name, types[name], where) for name in chosen}

    def kind_of(self, name: str, type_: str, where: str) -> str:
        if name in self.hashed:
            return "hash"
        if name in self.categorical or type_ == TEXT:
            return "levels"
        if type_ == OTHER:
            raise InputError(f"{where}: column {name!r} holds no numbers, texts or dates; leave it out: --drop {name}")
        return NUMBER if type_ == BOOLEAN else type_


def first_columns(names: Mapping[str, str]) -> str:
    """The first columns of a table, for messages."""
    first = list(names)[:20]
    return ", ".join(first) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def plain_type(type_: str) -> str:
    """How a table that has columns of this kind is to be read: texts for levels and hashes."""
    return TEXT if type_ in ("levels", "hash") else type_


def read_types(columns: Columns, there: Mapping[str, str], *, label: str | None, weight: str | None) -> dict[str, str]:
    """The columns to read of a table, with what each is to be read as."""
    wanted = {column.name: plain_type(column.kind) for column in columns.columns}
    for name in (label, weight, columns.group):
        if name is not None:
            wanted[name] = there.get(name, NUMBER)
    return wanted
