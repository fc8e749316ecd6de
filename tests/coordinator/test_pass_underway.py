"""The position in a pass: which scans count, which certify, and which end it."""

import pytest

from distdual.coordinator.pass_underway import PassUnderway
from distdual.coordinator.schedule import Pass, Piece
from distdual.scan.slack import EXAMPLE
from distdual.solver.ascent_plan import Ascent

BETWEEN, LAST = Ascent(0.1, 1), Ascent(0.01, 9)
ROUNDS = ((Piece(0, 0, 5), Piece(1, 0, 3)), (Piece(1, 3, 9), Piece(2, 0, 4)))


def turns(certify: bool, visits: int) -> list[tuple[int, bool, bool, bool, bool]]:
    here = PassUnderway(Pass(certify, ROUNDS, BETWEEN, LAST, visits=visits), EXAMPLE)
    found = []
    for _ in range(len(ROUNDS) * visits):
        turn = here.next_turn()
        assert here.ascent(turn) == (LAST if turn.over else BETWEEN)
        found.append((ROUNDS.index(turn.pieces), turn.counts, turn.certify, turn.closes, turn.over))
        here.done += 1
    return found


@pytest.mark.parametrize("certify", [False, True])
def test_each_round_is_visited_in_turn_and_its_first_visit_counts(certify):
    assert turns(certify, 1) == [(0, True, certify, False, False), (1, True, certify, certify, True)]
    assert turns(certify, 2) == [
        (0, True, certify, False, False),
        (0, False, False, False, False),
        (1, True, certify, certify, False),
        (1, False, False, False, True),
    ]


def test_shards_that_other_rounds_need_are_kept():
    here = PassUnderway(Pass(False, ROUNDS, BETWEEN, LAST), EXAMPLE)
    assert here.reread() == {1}
    assert PassUnderway(Pass(False, ROUNDS, BETWEEN, LAST, visits=2), EXAMPLE).reread() == {0, 1}


def test_weights_are_saved_apart():
    saved = PassUnderway(Pass(False, ROUNDS, BETWEEN, LAST), EXAMPLE, done=1).without_weights()
    assert "w" not in saved
    assert saved["done"] == 1
