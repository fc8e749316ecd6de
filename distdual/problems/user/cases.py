"""The examples of a shard as a user's code sees them, and what it is told once a run about each."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from distdual.data.shard import Memo, Shard
from distdual.data.structures import Side
from distdual.data.validate import finite_rows
from distdual.errors import InputError
from distdual.kernels.rows import CsrRows, DenseRows
from distdual.problems.user.rows import KeptVector
from distdual.problems.user.time_limit import OvertimeError, time_limit


class Inputs:
    """x and y of the examples of a shard, by their number in it."""

    def __init__(self, shard: Shard, n_features: int, *, sparse: bool) -> None:
        self.shard = shard
        self.n_features = n_features
        self.sparse = sparse
        self.x_side = Side(shard.runs, "x") if shard.structured and shard.runs else None
        self.y_side = Side(shard.runs, "y") if shard.structured and shard.runs else None

    def x(self, i: int) -> Any:
        """Arrays of a structure are read-only; a row is a copy: what the user does to it stays with the user."""
        return self._row(i) if self.x_side is None else self.x_side.of(i)

    def label(self, i: int) -> Any:
        """The label as it is stored; None where the data set has none."""
        if self.y_side is None:
            return self.shard.y[i].item()
        return self.y_side.of(i) if self.y_side else None

    @property
    def labelled(self) -> bool:
        return self.y_side is None or bool(self.y_side)

    def finite(self) -> list[bool]:
        """Which rows have only numbers; structures may mean something by NaN."""
        found: list[bool] = finite_rows(self.shard.x).tolist()
        return found

    def _row(self, i: int) -> Any:
        rows = self.shard.x
        if isinstance(rows, DenseRows):
            x = rows.values[i].copy()
            return (np.flatnonzero(x), x[x != 0]) if self.sparse else x
        assert isinstance(rows, CsrRows)
        at = slice(rows.indptr[i], rows.indptr[i + 1])
        indices, values = rows.indices[at].astype(np.int64), rows.values[at].copy()
        if self.sparse:
            return indices, values
        x = np.zeros(self.n_features, dtype=np.float32)
        x[indices] = values
        return x


class At:
    """The example that the user's code is at; setting it starts its time."""

    def __init__(self, restart: Any) -> None:
        self.i = 0
        self.restart = restart

    def __call__(self, i: int) -> None:
        self.i = i
        self.restart()


@contextlib.contextmanager
def naming_example(kind: str, seconds: float, shard: Shard, i: int = 0) -> Iterator[At]:
    """Turn whatever the user's code raises, or that it does not end, into an InputError that names the example."""
    at: At | None = None
    try:
        with time_limit(seconds) as restart:
            at = At(restart)
            at.i = i
            yield at
    except InputError as error:
        where = place(kind, shard, at, i)
        if str(error).startswith(where):
            raise
        raise InputError(f"{where} (shard {shard.number}): {str(error).removeprefix(f'{kind}: ')}") from error
    except OvertimeError:
        raise InputError(
            f"{place(kind, shard, at, i)}: did not return within {seconds:g} s (oracle_seconds of its class), "
            f"in shard {shard.number}"
        ) from None
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{place(kind, shard, at, i)}: raised {type(error).__name__}: {error}, in shard {shard.number}"
        ) from error


def place(kind: str, shard: Shard, at: At | None, i: int) -> str:
    return f"{kind}: example {shard.first + (i if at is None else at.i)}"


def remember_vector(memo: Memo | None, key: Any, vector: KeptVector) -> None:
    """Keep φ of the right output for the next scans of a shard that stays in memory."""
    if memo is not None:
        size = sum(part.nbytes for part in vector) if isinstance(vector, tuple) else sys.getsizeof(vector)
        memo.add(key, vector, size)
