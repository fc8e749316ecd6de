"""The benchmarks themselves: their peers, the number that judges them, and the report of peers that do not run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import plots, publish
from benchmarks.ablation import ALL, ratio, took_part
from benchmarks.case import Case
from benchmarks.climb import Point, climb_apart, conclude, next_effort
from benchmarks.datasets import CASES
from benchmarks.datasets.synthetic import tiny_binary, tiny_multiclass, tiny_regression
from benchmarks.growth import exponents
from benchmarks.objective import Objective, Solution
from benchmarks.passes import GOALS, Goal, figures, in_this_process, missed, on_s3, row
from benchmarks.race import peer_line, race
from benchmarks.solvers import PEERS, ours
from benchmarks.solvers.base import Iterations, Tolerance
from benchmarks.suites import SUITES

HERE = Path()


def slacks(case: Case, w: Any) -> Any:
    """ξ_i(w), the plain way."""
    scores = case.x @ w.reshape(-1, case.x.shape[1]).T
    if case.kind == "binary":
        return np.maximum(0, 1 - case.y * scores[:, 0])
    if case.kind == "regression":
        return np.maximum(0, abs(case.y - scores[:, 0]) - case.problem.epsilon)
    behind = 1 + scores - scores[np.arange(len(case.y)), case.y][:, None]
    behind[np.arange(len(case.y)), case.y] = 0
    return behind.max(axis=1)


@pytest.mark.parametrize("make", [tiny_binary, tiny_multiclass, tiny_regression])
def test_the_judge_tells_p_of_any_weights(make: Any) -> None:
    case = make(HERE, HERE)
    w = np.random.default_rng(1).normal(size=case.problem.n_weights)
    judged = Objective(case).judge(Solution(w))
    assert judged.primal == pytest.approx(0.5 * w @ w + case.C * slacks(case, w).sum(), rel=1e-12)
    assert judged.dual is None


@pytest.mark.parametrize("make", [tiny_binary, tiny_multiclass, tiny_regression])
def test_the_judge_rebuilds_what_we_claim_to_have_proven(make: Any) -> None:
    case = make(HERE, HERE)
    outcome = ours.solve(case, 1e-3).outcome
    objective = Objective(case)
    judged = objective.judge(ours.solution(outcome))
    assert judged.primal == pytest.approx(outcome.certificate.upper, rel=1e-9)
    assert judged.dual == pytest.approx(outcome.certificate.lower, rel=1e-9)
    assert objective.lower == judged.dual


def test_an_alpha_that_is_not_feasible_proves_nothing() -> None:
    case = tiny_binary(HERE, HERE)
    found = ours.solution(ours.solve(case, 1e-3).outcome)
    objective = Objective(case)
    forged = objective.judge(found._replace(dual=found.dual._replace(alpha=2 * found.dual.alpha)))
    assert forged.dual == 0.0


def test_a_race_certifies_us_times_peers_at_the_goal_and_tells_who_is_missing(tmp_path: Path) -> None:
    case = tiny_binary(HERE, HERE)
    found = race(case, tmp_path, 2, {"LinearSVC": "", "lightning": "not installed"})
    own, peer, missing = found["solvers"]
    assert own["status"] == "ran"
    assert own["certified_gap"] <= case.gap
    assert own["repetitions"] == 2
    assert own["fastest"] <= own["seconds"] <= own["slowest"]
    assert peer["status"] == "ran"
    assert 0 <= peer["suboptimality"] <= case.gap
    assert missing == {"solver": "lightning", "status": "not installed", "points": [], "effort_is": "max_iter"}
    record = {"peers": {"lightning": "not installed"}, "races": [stamped(found)], "tables": []}
    page = publish.pages(json.loads(json.dumps(record)))
    assert "| lightning | not installed |" in page
    assert "LinearSVC" in publish.summary(record)
    plots.draw(record, tmp_path)
    assert (tmp_path / "tiny.png").stat().st_size > 1000


def stamped(found: dict[str, Any]) -> dict[str, Any]:
    machine = {"processor": "a", "cores": 2, "memory_gb": 8, "system": "Linux"}
    return {**found, "date": "2026-01-01", "command": "c", "machine": machine, "versions": {}, "load": 0.5}


def test_a_peer_that_fails_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(type(PEERS["LinearSVC"]), "ready", fail)
    line = race(tiny_binary(HERE, HERE), tmp_path, 1, {"LinearSVC": ""})["solvers"][1]
    assert line["status"] == "failed: RuntimeError: no such luck"
    assert "seconds" not in line


def test_what_another_process_says_last_is_why_it_has_no_points(tmp_path: Path) -> None:
    points, why = climb_apart(tmp_path, "no such case", "LinearSVC", 0.0, 30.0)
    assert not points
    assert "invalid choice" in why


def test_the_least_effort_is_looked_for_between_too_little_and_enough() -> None:
    ladder = Iterations(64)
    assert next_effort(ladder, 1.0, None) == 2.0
    assert next_effort(ladder, 64.0, None) is None
    assert next_effort(ladder, 8.0, 16.0) == 12.0
    assert next_effort(ladder, 11.0, 12.0) is None
    assert next_effort(ladder, None, 1.0) is None
    assert next_effort(Tolerance(), 0.25, 0.0625) == pytest.approx(0.125)


def test_a_peer_that_is_never_near_enough_is_told_with_how_near_it_came() -> None:
    points = [Point(1.0, 2.0, 5.0, 0.5, {}), Point(2.0, 4.0, 4.0, 0.25, {})]
    found = conclude(points, 1e-3, "")
    assert found.best is None
    assert found.status == "not within 0.001 of the optimum after 6 s of tries; the nearest was 2.5e-01"


def test_a_peer_that_has_missed_the_goal_is_told_by_the_time_it_would_take_at_least() -> None:
    points = [Point(1.0, 2.0, 5.0, 0.5, {}), Point(2.0, 3.94, 4.0, 0.25, {})]
    late = peer_line("LinearSVC", conclude(points, 1e-3, ""), [])
    assert late["more_than"] == 3.94
    assert "more_than" not in peer_line("LinearSVC", conclude([], 1e-3, "not installed"), [])
    own = {"solver": "distdual", "seconds": 1.0}
    race = {"title": "t", "examples": 1, "features": 1, "goal": 1e-3, "solvers": [own, late]}
    assert publish.short_line(race)[-1] == "LinearSVC more than 3.94 s (below 0.26)"  # 0.254
    assert publish.short_line({**race, "solvers": [{**own, "seconds": 5.0}, late]})[-1] == "none"


def test_exponents_are_those_of_power_laws() -> None:
    sizes = [100, 200, 400]
    assert exponents(sizes, [[3.0 * n, 0.1 * n**1.5] for n in sizes]) == [1.0, 1.5]


def test_what_is_measured_again_replaces_what_was() -> None:
    old = {"peers": {"a": "", "b": "not installed"}, "races": [{"case": "x", "solvers": []}], "tables": []}
    line = {"solver": "distdual", "curve": [[1, 2]], "points": [], "seconds": 1.0}
    new = {"peers": {"b": ""}, "races": [{"case": "x", "solvers": [line]}, {"case": "y", "solvers": []}], "tables": []}
    found = publish.merged(old, new)
    assert found["peers"] == {"a": "", "b": ""}
    assert [race["case"] for race in found["races"]] == ["x", "y"]
    assert found["races"][0]["solvers"] == [{"solver": "distdual", "seconds": 1.0}]


def test_tables_in_the_readme_and_the_documentation_are_those_of_the_record() -> None:
    record = json.loads(publish.RECORD.read_text())
    readme = publish.README.read_text()
    assert publish.between_marks(readme, publish.summary(record)) == readme
    assert publish.PAGE.read_text() == publish.HEADER + publish.pages(record)


def test_every_suite_names_cases_and_peers_that_are_there() -> None:
    for suite in SUITES.values():
        assert set(suite.cases) <= set(CASES)
        assert set(suite.peers or ()) <= set(PEERS)


def test_every_goal_of_passes_names_a_case() -> None:
    assert {goal.case for goal in GOALS.values()} <= CASES.keys()


def test_a_run_misses_the_bounds_that_it_exceeds() -> None:
    goal = Goal("tiny", 0.1, 1e-3, 4)
    run = {"certified": True, "passes": 4, "bytes_read": 409, "data_bytes": 100}
    assert missed(goal, run) == []
    assert missed(goal, {**run, "bytes_read": 411}) == ["bytes"]
    assert missed(goal, {**run, "certified": False, "passes": 5}) == ["gap", "passes"]


def test_passes_in_memory_read_nothing() -> None:
    goal = Goal("tiny", 0.1, 1e-3, 100)
    with in_this_process() as solve:
        found = figures(goal, lambda name: CASES[name](HERE, HERE), solve, {})
    assert found["certified"]
    assert found["missed"] == []
    assert row("tiny", goal, found)[5:7] == [None, None]


@pytest.mark.slow
def test_passes_on_s3_read_every_shard_each_time() -> None:
    goal = Goal("tiny3", 0.1, 1e-3, 100)
    with on_s3(3) as solve:
        found = figures(goal, lambda name: CASES[name](HERE, HERE), solve, {"schedule": "batch"})
    assert found["certified"]
    assert found["bytes_read"] == found["passes"] * found["data_bytes"] > 0


def test_every_switch_of_the_ablation_finds_what_it_turns_off() -> None:
    code = "from benchmarks.ablation_switches import SWITCHES\nfor switch in SWITCHES.values(): switch.off()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_mechanism_that_changes_no_count_took_no_part() -> None:
    everything = {"passes": 4, "updates": 90, "seconds": [2.0, 1.0, 3.0]}
    found = {ALL: everything, "strides": {**everything, "updates": 91, "seconds": [4.0, 1.0, 9.0]}}
    found |= {"look skipping": {**everything, "seconds": []}, "simd": {**everything, "seconds": [1.0]}}
    assert [name for name in found if took_part(name, found)] == ["strides", "simd"]
    assert [ratio(found, name) for name in found] == ["2 s", "2.00", "same", "0.50"]
