"""Feature numbers, from a vocabulary or a hash.

Either a vocabulary knows: it numbers the features of the training text, the most frequent first, and no others. Or a
hash of the name decides, and nothing needs to be kept.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from distdual.data.sources.token_features import NONE, TokenFeatures
from distdual.errors import InputError
from distdual.kernels.rows import CsrRows, Ints


@dataclass(frozen=True)
class Vocabulary:
    names: list[str] = field(repr=False)  # name number k

    @property
    def n_features(self) -> int:
        return len(self.names)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def numbers(self, names: list[str]) -> Ints:
        """NONE for a name that is not in the vocabulary."""
        known = self._numbers
        return np.array([known.get(name, NONE) for name in names], dtype=np.int64)

    def to_text(self) -> str:
        """A name a line; none holds a line end, as it comes from within a line."""
        return "".join(f"{name}\n" for name in self.names)

    @staticmethod
    def from_text(text: str) -> "Vocabulary":
        return Vocabulary(text.split("\n")[:-1])


@dataclass(frozen=True)
class Hashing:
    bits: int

    @property
    def n_features(self) -> int:
        return 1 << self.bits

    def numbers(self, names: list[str]) -> Ints:
        """The last bits of BLAKE2b: the same on every machine."""
        digests = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
        return (np.frombuffer(digests, dtype="<u8") & np.uint64(self.n_features - 1)).astype(np.int64)


Numbering = Vocabulary | Hashing


def count_features(found: Iterable[TokenFeatures], min_count: int) -> Vocabulary:
    """The vocabulary of all features that are found at `min_count` tokens or more."""
    counts: dict[str, int] = {}
    for names, at in found:
        here = np.bincount(at[at != NONE], minlength=len(names)).tolist()
        for name, count in zip(names, here, strict=True):
            if count:
                counts[name] = counts.get(name, 0) + count
    often = np.fromiter(counts.values(), dtype=np.int64, count=len(counts))
    if counts and not (often >= min_count).any():
        raise InputError(f"no feature is found {min_count} times; check templates, and lower min_count")
    order = np.argsort(-often, kind="stable")[: int((often >= min_count).sum())].tolist()
    names = list(counts)
    return Vocabulary([names[k] for k in order])


def indicator_rows(found: Iterable[TokenFeatures], numbering: Numbering) -> CsrRows:
    """A row of ones for each token; features without a number are left out, those with the same one are one."""
    columns = np.sort(np.stack([np.append(numbering.numbers(names), NONE)[at] for names, at in found], axis=1), axis=1)
    keep = columns != NONE
    keep[:, 1:] &= columns[:, 1:] != columns[:, :-1]
    indptr = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
    return CsrRows(indptr, columns[keep].astype(np.int32), np.ones(int(indptr[-1]), dtype=np.float32))
