"""The value of `solver.slack`: which examples share one slack."""

from dataclasses import dataclass

import numpy as np

from distdual.kernels.rows import Ints


@dataclass(frozen=True, slots=True)
class Slack:
    """Examples share a slack with `per_group` − 1 neighbours in their shard, with the whole shard, or with all."""

    per_group: int | None  # None: no limit within a shard
    is_all: bool = False  # one group for all shards

    @staticmethod
    def parse(text: str) -> "Slack":
        """The slack called "example", "block:N", "shard" or "all"."""
        named = {str(slack): slack for slack in (EXAMPLE, SHARD, ALL)}
        return named[text] if text in named else Slack(int(text.removeprefix("block:")))

    def __str__(self) -> str:
        if self.per_group is None:
            return "all" if self.is_all else "shard"
        return "example" if self.is_example else f"block:{self.per_group}"

    @property
    def is_example(self) -> bool:
        """Whether no slack is shared."""
        return self.per_group == 1

    @property
    def within_shard(self) -> "Slack":
        """The groups that a scan of one shard can form; where all share a slack, each shard adds a part."""
        return SHARD if self.is_all else self

    def coarser(self, largest_shard: int) -> "Slack":
        """Groups twice as large, up to a shard; then all examples. Each group is a union of the finer ones."""
        if self.per_group is None:
            return ALL
        return Slack(2 * self.per_group) if 2 * self.per_group < largest_shard else SHARD

    def first_member(self, position: Ints) -> Ints:
        """The position of the first member of each one's group; positions are within a shard."""
        if self.per_group is None:
            return np.zeros_like(position)
        return position // self.per_group * self.per_group

    def next_cut(self, position: int, end: int) -> int:
        """The first boundary between groups at or after a position in a shard, or `end` if that comes first."""
        return end if self.per_group is None else min(end, -(-position // self.per_group) * self.per_group)

    def n_groups(self, sizes: Ints) -> int:
        """The number of groups in shards of these sizes."""
        if self.is_all:
            return 1
        return len(sizes) if self.per_group is None else int((-(-sizes // self.per_group)).sum())


EXAMPLE = Slack(1)
SHARD = Slack(None)
ALL = Slack(None, is_all=True)
