"""Rows of one shard for a feature map, and what `gamma = "scale"` needs of the others. Pure; runs on a worker."""

from typing import Any, NamedTuple

from distdual.feature_maps.landmarks import Moments, moments_of
from distdual.kernels.rows import Features, Floats, Ints
from distdual.problems.base import Problem
from distdual.scan.shard_reader import Openable, streamed


class Wanted(NamedTuple):
    """Rows of a shard, by their numbers in it."""

    landmarks: Ints
    sample: Ints
    moments: int | None  # the features a row, to take sums over all of them


class Taken(NamedTuple):
    landmarks: Features
    sample: Features
    moments: Moments


def take_rows(source: Openable, problem: Problem, w: Floats, shard: int, wanted: Wanted) -> Taken:  # noqa: ARG001
    with streamed(source, shard) as loaded:
        x: Any = loaded.shard.x
        moments = Moments() if wanted.moments is None else moments_of(x, wanted.moments)
        return Taken(x.take(wanted.landmarks), x.take(wanted.sample), moments)
