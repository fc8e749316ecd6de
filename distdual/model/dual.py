"""The dual solution that proves a lower bound, and its files in a model folder.

Support constraints are stored by name, so that anyone can rebuild them from the data set: those of single examples by
example and key, rows of groups by members file and row. Σ α over the rows that an example is a member of is at most C,
however large the groups were. A summary cannot be rebuilt.

dual/              of single examples: example.npy, key_indptr.npy, key_values.npy, alpha.npy
                   of groups: shard.npy, file.npy, row.npy, alpha.npy, members-RUN/FILE.npz (scan/group_members_file.py)
                   of a summary: linear.npy (Σ α l) and v.npy (Σ α x)
                   of all: beta.npy, the multipliers of w_k ≥ 0 under a full prior
"""

import io
import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.data.storage.location import Location
from distdual.data.storage.npy_io import load_npy
from distdual.errors import InputError
from distdual.kernels.rows import Floats, Ints
from distdual.model.schema import MEMBERS
from distdual.problems.base import Keys
from distdual.schema import array, rising


class Dual(NamedTuple):
    """The support constraints, each of a single example."""

    example: Ints  # ascending
    keys: Keys
    alpha: Floats
    beta: Floats  # (n_weights,) multipliers of w_k ≥ 0 where the prior's precision is a full matrix, else empty

    @property
    def support(self) -> int:
        return len(self.alpha)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "example": self.example,
            "key_indptr": self.keys.indptr,
            "key_values": self.keys.values,
            "alpha": self.alpha,
            "beta": self.beta,
        }

    def of_shard(self, first: Ints, shard: int) -> "Dual":
        begin, end = np.searchsorted(self.example, first[shard : shard + 2])
        which = slice(int(begin), int(end))
        return Dual(self.example[which], self.keys.take(which), self.alpha[which], self.beta[:0])


class GroupDual(NamedTuple):
    """The rows of groups that make up Σ α x, mixtures resolved."""

    shard: Ints  # whose examples are the members
    file: Ints  # the members file
    row: Ints  # of that file
    alpha: Floats
    beta: Floats
    members: str  # the folder of members files, within the model folder

    @property
    def support(self) -> int:
        return len(self.alpha)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"shard": self.shard, "file": self.file, "row": self.row, "alpha": self.alpha, "beta": self.beta}

    def of_shard(self, first: Ints, shard: int) -> "GroupDual":  # noqa: ARG002 - as Dual.of_shard
        at = np.flatnonzero(self.shard == shard)
        return GroupDual(self.shard[at], self.file[at], self.row[at], self.alpha[at], self.beta[:0], self.members)


class DualSummary(NamedTuple):
    """Σ α l and Σ α x as training had them, which cannot be rebuilt from the data set."""

    linear: Floats  # (1,)
    v: Floats  # without what β adds
    beta: Floats
    support: int

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"linear": self.linear, "v": self.v, "beta": self.beta}


AnyDual = Dual | GroupDual | DualSummary

DUAL_KINDS: dict[type, str] = {Dual: "examples", GroupDual: "groups", DualSummary: "summary"}
FILES = ("example", "key_indptr", "key_values", "shard", "file", "row", "linear", "v", "alpha", "beta")


def is_members_folder(name: Any) -> bool:
    """Whether a name read from JSON is a folder of members files within a model folder."""
    return isinstance(name, str) and re.fullmatch(MEMBERS, name) is not None


def describe_dual(dual: AnyDual) -> dict[str, Any]:
    """Return the entries of model.json; support constraints of single examples are the default."""
    if isinstance(dual, Dual):
        return {}
    return {"dual": DUAL_KINDS[type(dual)], **({"members": dual.members} if isinstance(dual, GroupDual) else {})}


def read_dual(location: Location, about: dict[str, Any], support: int) -> AnyDual:
    """Read the dual of a model folder; `support` is the number in its certificate."""
    kind = about.get("dual", "examples")

    def read(name: str, dtype: Any) -> NDArray[Any]:
        return read_npy(location, f"dual/{name}.npy", dtype)

    def multipliers(name: str) -> Floats:
        return array(f"{location}/dual/{name}.npy", read(name, np.float64), np.float64, (None,), low=0)

    beta = multipliers("beta")
    if kind == "summary":
        linear = read("linear", np.float64)
        if len(linear) != 1:
            raise InputError(f"{location}/dual/linear.npy: expected one number, found {len(linear)}")
        return DualSummary(linear, read("v", np.float64), beta, support)
    alpha = multipliers("alpha")
    if kind == "groups":
        shard, file, row = (read(name, np.int64) for name in ("shard", "file", "row"))
        if any(len(column) != len(alpha) or (column < 0).any() for column in (shard, file, row)):
            raise InputError(f"{location}/dual: shard, file, row and alpha do not fit together")
        members = about.get("members")
        if not is_members_folder(members):
            raise InputError(f"{location}/model.json: members must name a folder in dual/, got {members!r}")
        return GroupDual(shard, file, row, alpha, beta, str(members))
    keys = Keys(read("key_indptr", np.int64), read("key_values", np.int32))
    example = read("example", np.int64)
    if (example < 0).any() or (np.diff(example) < 0).any():
        raise InputError(f"{location}/dual/example.npy: the numbers of examples must ascend from 0")
    if not len(example) == len(alpha) == len(keys.indptr) - 1:
        raise InputError(f"{location}/dual: example, key_indptr and alpha differ in length")
    rising(f"{location}/dual/key_indptr.npy", keys.indptr, len(keys.values))
    return Dual(example, keys, alpha, beta)


def npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def read_npy(location: Location, name: str, dtype: Any, dimensions: tuple[int, ...] = (1,)) -> NDArray[Any]:
    try:
        array = load_npy(io.BytesIO(location.read(name)))
    except (ValueError, EOFError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{location}/{name}: not a NumPy array: {error}") from None
    if array.dtype != dtype or array.ndim not in dimensions:
        shape = "flat" if dimensions == (1,) else "flat or square"
        raise InputError(f"{location}/{name}: expected a {shape} {np.dtype(dtype)} array, found {array.dtype}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{location}/{name}: a number is NaN or infinite")
    return array
