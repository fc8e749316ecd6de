"""The table that `sweep` prints."""

import pytest

from distdual.cli.analysis_commands import aligned, at_the_edge


def test_columns_are_as_wide_as_what_they_hold():
    found = aligned([["C", "balanced_accuracy"], ["0.001", "0.5"], ["1234567.5", "1"]])
    assert found == [
        "        C  balanced_accuracy",
        "    0.001                0.5",
        "1234567.5                  1",
    ]


@pytest.mark.parametrize(("chosen", "word"), [(1.0, "smaller"), (4.0, "larger"), (2.0, "")])
def test_a_best_C_at_the_edge_of_the_path_is_told(chosen, word):
    found = at_the_edge(chosen, [1.0, 2.0, 4.0])
    assert (word in found) if word else found == ""


def test_one_C_has_no_edge():
    assert at_the_edge(1.0, [1.0]) == ""
