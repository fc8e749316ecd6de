"""Slack: names, and groups that are nested."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.scan.slack import ALL, EXAMPLE, SHARD, Slack

SLACKS = [EXAMPLE, Slack(2), Slack(12), SHARD, ALL]


@pytest.mark.parametrize("text", ["example", "block:12", "shard", "all"])
def test_a_slack_is_written_as_in_the_config(text):
    assert str(Slack.parse(text)) == text


def test_blocks_of_one_are_examples():
    assert Slack.parse("block:1") == EXAMPLE
    assert str(Slack(1)) == "example"


def test_only_all_joins_shards():
    assert [slack for slack in SLACKS if slack.is_all] == [ALL]
    assert [slack.within_shard for slack in SLACKS] == [EXAMPLE, Slack(2), Slack(12), SHARD, SHARD]


@given(per_group=st.integers(1, 50), size=st.integers(1, 300))
def test_coarser_groups_are_unions_of_finer_ones_and_end_at_all(per_group, size):
    slack, seen = Slack(per_group), [Slack(per_group)]
    position = np.arange(size)
    while not slack.is_all:
        coarse = slack.coarser(size)
        np.testing.assert_array_equal(coarse.first_member(slack.first_member(position)), coarse.first_member(position))
        slack = coarse
        seen.append(slack)
    assert seen[-2:] == [SHARD, ALL]


@pytest.mark.parametrize("slack", SLACKS)
def test_cuts_lie_between_groups_and_groups_are_counted(slack):
    first = slack.first_member(np.arange(30)).tolist()
    for position in range(30):
        cut = slack.next_cut(position, 30)
        assert cut >= position
        assert cut == 30 or first[cut] == cut
    n = 1 if slack.is_all else len(set(first)) + len(set(first[:7]))
    assert slack.n_groups(np.array([30, 7])) == n
