"""The automatic choice follows sizes and declared costs, never a clock."""

import numpy as np

from distdual.coordinator.auto_slack import choose, group_bytes
from distdual.scan.slack import ALL, EXAMPLE, SHARD, Slack

SIZES = np.full(20, 10_000)
WIDE = 54


def chosen(budget: float, *, oracle_work: float = 0.5, slack: str = "auto") -> int:
    return choose(slack, SIZES, 4 * WIDE * int(SIZES.sum()), WIDE, oracle_work, budget).slack


def test_examples_stay_single_while_all_of_them_fit():
    assert chosen(np.inf) == EXAMPLE
    assert chosen(1e9) == EXAMPLE


def test_groups_grow_as_memory_shrinks_until_one_holds_all():
    slacks = [chosen(budget) for budget in np.geomspace(5e7, 1e3, 40)]
    counts = [slack.n_groups(SIZES) for slack in slacks]
    assert counts == sorted(counts, reverse=True)
    assert slacks[0].per_group in (8, 16, 32)
    assert slacks[-1] == ALL
    assert SHARD in slacks


def test_what_is_chosen_leaves_room_for_some_constraints_a_group():
    for budget in np.geomspace(5e7, 1e5, 20):
        slack = chosen(budget)
        assert slack in (SHARD, ALL) or 4 * group_bytes(slack, SIZES, 4 * WIDE, WIDE) <= budget


def test_an_expensive_oracle_keeps_examples_single_at_first():
    assert chosen(1e6, oracle_work=6.5) == EXAMPLE
    assert chosen(1e6, oracle_work=0.5) != EXAMPLE


def test_what_the_user_says_is_done():
    assert chosen(np.inf, slack="block:12") == Slack(12)
    choice = choose("auto", SIZES, 10**9, WIDE, 0.5, 1e6)
    assert choice.why.startswith("slack block:")
