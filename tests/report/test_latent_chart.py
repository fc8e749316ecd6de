"""The report of a latent problem shows how its objective fell."""

from pathlib import Path

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.report.latent_chart import turns
from distdual.report.write_report import write_report
from tests.coordinator.test_latent_loop import planted


def test_the_objective_of_each_turn_is_drawn(tmp_path: Path) -> None:
    made = planted(2)
    prepare_arrays(made.x, made.y, tmp_path / "data", "latent", shard_bytes=1500)
    config = {
        "data": {"url": str(tmp_path / "data")},
        "problem": {"kind": "latent", "init": "random", "restarts": 2},
        "output": {"url": str(tmp_path / "model"), "log": str(tmp_path / "run.jsonl")},
    }
    found = distdual.train(config).certificate
    drawn = turns(found)
    assert "Objective over turns" in drawn
    assert f"restart {found['latent']['trace'][-1]['restart'] + 1} of 2, the lowest" in drawn
    write_report(str(tmp_path / "model"), tmp_path / "report.html", png=False)
    assert drawn in (tmp_path / "report.html").read_text()


def test_convex_problems_have_no_turns() -> None:
    assert turns({"lower": 1.0}) == ""
