"""Decisions are values: when to stop, what to scan next, and at how many w."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.coordinator.schedule import (
    CERTIFY_EVERY,
    EXPENSIVE_CALL,
    EXPENSIVE_ROUNDS,
    FIRST_PIECE,
    MAX_ASCENT,
    MAX_ROUNDS,
    NEXT_SCAN_SHARE,
    PIECE_WORK,
    SHARERS,
    Cause,
    Limits,
    Pass,
    Piece,
    Progress,
    Stop,
    after_scan,
    climbing,
    cut_expensive,
    cut_rounds,
    max_rounds,
    next_step,
)
from distdual.scan.slack import ALL, SHARD, Slack
from distdual.solver.ascent_plan import Ascent

SIZES = np.full(20, 1000)
BEGIN = Progress(n_passes=0, estimate=np.inf, gap=np.inf, oracle_sweeps=8.0, seconds=0.0)
LATER = replace(BEGIN, n_passes=2, estimate=0.5)
LIMITS = Limits(schedule="slope", target=1e-3, max_passes=200, max_seconds=np.inf, seed=0)

SCHEDULES = ["gap", "slope", "one-pass", "ratio:3", "reprocess:2", "mine", "batch"]
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


def limits(**changes) -> Limits:
    return replace(LIMITS, **changes)


def planned(progress: Progress, sizes=SIZES, **changes) -> Pass:
    step = next_step(progress, np.asarray(sizes), limits(**changes))
    assert isinstance(step, Pass)
    return step


@schedules
@pytest.mark.parametrize(
    ("progress", "changes", "cause", "reason"),
    [
        ({"gap": 1e-3, "n_passes": 3}, {}, Cause.TARGET, "gap 1.00e-03 is at most the target 1.00e-03"),
        ({"gap": 2e-4, "n_passes": 200}, {}, Cause.TARGET, "gap 2.00e-04 is at most the target 1.00e-03"),
        ({"n_passes": 7}, {"max_passes": 7}, Cause.MAX_PASSES, "7 passes are done"),
        ({"n_passes": 9, "n_filled": 2}, {"max_passes": 7}, Cause.MAX_PASSES, "7 passes are done"),
        ({"seconds": 2.5}, {"max_seconds": 2.5}, Cause.MAX_SECONDS, "2.5 seconds are over"),
        ({"interrupted": True}, {}, Cause.INTERRUPTED, "interrupted"),
        (
            {"inexact_gap": 1e-4},
            {},
            Cause.ESTIMATE,
            "estimated gap 1.00e-04 is at most the target; inexact inference proves none",
        ),
    ],
    ids=[
        "the gap is proven",
        "the gap is proven at the last moment",
        "all passes are done",
        "all passes that count are done",
        "the time is over",
        "somebody interrupts",
        "the gap is estimated",
    ],
)
def test_it_stops_and_says_why_when(schedule, progress, changes, cause, reason):
    step = next_step(replace(BEGIN, **progress), SIZES, limits(schedule=schedule, **changes))
    assert step == Stop(cause, reason)


@schedules
def test_it_does_not_stop_before(schedule):
    assert isinstance(next_step(BEGIN, SIZES, limits(schedule=schedule, max_passes=1, max_seconds=1e-9)), Pass)
    almost = replace(BEGIN, gap=1.001e-3, estimate=1e-9)
    assert isinstance(next_step(almost, SIZES, limits(schedule=schedule)), Pass)


def test_passes_that_keep_workers_busy_do_not_count():
    progress = replace(LATER, n_passes=9, n_filled=3)
    assert isinstance(next_step(progress, SIZES, limits(max_passes=7)), Pass)


def test_an_estimate_alone_never_stops_it():
    assert isinstance(next_step(replace(LATER, estimate=0.0), SIZES, LIMITS), Pass)


def test_one_pass_is_one_pass():
    stop = Stop(Cause.ONE_PASS, "the one pass is done")
    assert next_step(replace(LATER, n_passes=1), SIZES, limits(schedule="one-pass")) == stop


progresses = st.builds(
    Progress,
    n_passes=st.integers(0, 9),
    estimate=st.sampled_from([np.inf, 1.0, 0.3, 0.04, 1e-3, 1e-6]),
    gap=st.sampled_from([np.inf, 1.0, 0.3, 0.04, 2e-3]),
    oracle_sweeps=st.floats(0.0, 100.0),
    seconds=st.just(0.0),
)


@schedules
@given(
    progress=progresses,
    sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=12),
    seed=st.integers(0, 5),
)
def test_a_pass_meets_every_example_exactly_once(schedule, progress, sizes, seed):
    step = next_step(progress, np.array(sizes), limits(schedule=schedule, seed=seed))
    if isinstance(step, Stop):
        assert schedule == "one-pass"
        return
    met = [np.zeros(size, dtype=int) for size in sizes]
    for pieces in step.rounds:
        assert len({piece.shard for piece in pieces}) == len(pieces)  # a shard is scanned once a round
        for piece in pieces:
            assert 0 <= piece.begin < piece.end <= sizes[piece.shard]
            met[piece.shard][piece.begin : piece.end] += 1
    assert all((count == 1).all() for count in met)
    if step.certify:
        assert len(step.rounds) == 1  # at one w, or its losses would not add up to P(w)


@given(progress=progresses, sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=12), visits=st.integers(1, 3))
def test_a_streamed_pass_has_windows_within_memory_and_certifies_unless_it_is_the_first(progress, sizes, visits):
    n = sum(sizes)
    step = planned(progress, sizes, streamed_bytes=40 * (256 << 20), visits=visits)
    assert step.visits == visits
    assert step.certify == (progress.n_passes > 0)
    pieces = [piece for pieces in step.rounds for piece in pieces]
    assert sum(piece.end - piece.begin for piece in pieces) == n
    if visits > 1:
        assert max(sum(piece.end - piece.begin for piece in pieces) for pieces in step.rounds) <= -(-n // 40)


@schedules
@given(progress=progresses, seed=st.integers(0, 5))
def test_the_same_question_has_the_same_answer(schedule, progress, seed):
    asked = limits(schedule=schedule, seed=seed)
    assert next_step(progress, SIZES, asked) == next_step(progress, SIZES, asked)


def shard_order(step: Pass) -> list[int]:
    return list(dict.fromkeys(piece.shard for pieces in step.rounds for piece in pieces))


def test_the_order_of_shards_depends_on_the_seed_and_on_the_pass():
    orders = [shard_order(planned(replace(LATER, n_passes=p), seed=s)) for p in (1, 2) for s in (0, 1)]
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4


@pytest.mark.parametrize("schedule", [name for name in SCHEDULES if name not in ("batch", "mine")])
def test_the_first_weights_come_soon_and_rounds_at_most_double(schedule):
    sizes = [sum(piece.end - piece.begin for piece in pieces) for pieces in planned(BEGIN, schedule=schedule).rounds]
    assert sizes[0] <= FIRST_PIECE
    seen = np.cumsum(sizes)
    assert all(size <= before for size, before in zip(sizes[1:], seen, strict=False))


@pytest.mark.parametrize("schedule", [name for name in SCHEDULES if name != "one-pass"])
def test_a_small_estimate_leads_to_a_certificate(schedule):
    assert planned(replace(LATER, estimate=1e-4), schedule=schedule).certify


@pytest.mark.parametrize("schedule", [name for name in SCHEDULES if name != "one-pass"])
def test_a_certificate_is_tried_now_and_then_whatever_the_estimate_says(schedule):
    passes = [planned(replace(LATER, n_passes=p, estimate=1.0), schedule=schedule) for p in range(1, 1 + CERTIFY_EVERY)]
    assert any(step.certify for step in passes)


def test_the_first_pass_never_certifies_the_weights_nobody_has_improved():
    assert not planned(BEGIN).certify


@schedules
def test_the_cached_problem_is_not_solved_beyond_what_the_target_asks(schedule):
    step = planned(BEGIN, schedule=schedule)
    for plan in (step.between, step.last):
        assert plan.revisits or plan.tolerance >= 0.1 * LIMITS.target


def test_what_only_the_ascent_can_close_is_left_to_it_even_if_it_climbs_slowly():
    plan = climbing(0.01, 5)
    assert after_scan(plan, 0.004, 1e-3, climbed=100.0) == Ascent(0.004, 5, patience=MAX_ASCENT)
    assert after_scan(plan, 0.0, 1e-3, climbed=100.0) == Ascent(5e-4, 5, patience=MAX_ASCENT)


def test_where_passes_take_the_time_the_ascent_goes_as_far_as_the_next_one_will_see():
    plan = climbing(0.01, 5)
    assert after_scan(plan, 0.04, 1e-3, climbed=1.0) == Ascent(NEXT_SCAN_SHARE * 0.04, 5, patience=MAX_ASCENT)


def test_where_a_scan_found_much_that_is_new_the_slope_decides():
    assert after_scan(climbing(0.01, 5), 0.011, 1e-3, climbed=100.0) == climbing(0.01, 5)
    assert after_scan(climbing(0.01, 5), 0.11, 1e-3, climbed=1.0) == climbing(0.01, 5)


def test_a_plan_without_slope_stays_as_it_is():
    assert after_scan(Ascent(0.01, 5), 0.0, 1e-3, climbed=1.0) == Ascent(0.01, 5)


@pytest.mark.parametrize("slack", [Slack(1), Slack(7), Slack(64), SHARD])
def test_rounds_never_cut_a_group(slack):
    whole = [Piece(0, 0, 500), Piece(2, 0, 31), Piece(1, 0, 333)]
    rounds = cut_rounds(whole, 10, 200, slack)
    pieces = [piece for each in rounds for piece in each]
    ends = {piece.shard: piece.end for piece in whole}
    assert all(piece.begin in (0, slack.next_cut(piece.begin, ends[piece.shard])) for piece in pieces)
    assert all(piece.end == slack.next_cut(piece.end, ends[piece.shard]) for piece in pieces)
    covered = sorted((piece.shard, i) for piece in pieces for i in range(piece.begin, piece.end))
    assert covered == sorted((piece.shard, i) for piece in whole for i in range(piece.end))
    for each in rounds:  # parts of a round share no group
        assert len({piece.shard for piece in each}) == len(each)


def test_one_slack_for_all_is_scanned_at_one_w_from_the_first_pass_on():
    step = next_step(BEGIN, SIZES, limits(slack=ALL))
    assert isinstance(step, Pass)
    assert step.certify
    assert len(step.rounds) == 1


@given(
    work=st.floats(EXPENSIVE_CALL, 2 * PIECE_WORK), size=st.integers(1, 300), per_group=st.sampled_from([1, 8, None])
)
def test_an_expensive_oracle_gets_short_pieces_that_cover_all_and_cut_no_group(work, size, per_group):
    slack = Slack(per_group)
    found = cut_expensive((Piece(3, 0, size), Piece(5, 8, 8 + size)), work, slack)
    seen, left = {3: [], 5: []}, 2 * size
    for shard, begin, end in found:
        seen[shard] += range(begin, end)
        assert begin < end
        assert per_group is None or begin % per_group == 0
        most = max(PIECE_WORK, work, work * (left // SHARERS))
        assert per_group is None or work * (end - begin) <= most + work * (per_group - 1)
        left -= end - begin
    assert seen == {3: list(range(size)), 5: list(range(8, 8 + size))}


def test_an_expensive_oracle_makes_a_pass_of_few_rounds():
    costly = replace(LATER, oracle_sweeps=100.0)
    rounds = [len(planned(costly, max_rounds=max_rounds(work)).rounds) for work in (EXPENSIVE_CALL / 2, EXPENSIVE_CALL)]
    assert rounds == [MAX_ROUNDS, EXPENSIVE_ROUNDS]


def test_pieces_of_an_expensive_oracle_shrink_towards_the_end_of_a_round():
    found = cut_expensive(tuple(Piece(shard, 0, 16) for shard in range(64)), PIECE_WORK / 4, Slack(1))
    sizes = [end - begin for _, begin, end in found]
    assert (sizes[0], sizes[-1]) == (16, 4)
    assert len(sizes) < 64 * 16 / 4


def test_pieces_of_a_cheap_oracle_stay_whole():
    whole = (Piece(0, 0, 10**6),)
    assert cut_expensive(whole, 0.99 * EXPENSIVE_CALL, Slack(1)) is whole
