"""Scores on another data set while training, and the stop once they no longer improve."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdual
from distdual.config import EvalConfig, from_table
from distdual.coordinator.evaluation import last_scored, too_patient
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError
from distdual.kernels.compile_cache import watch
from distdual.report.log_reader import read_log
from distdual.report.page import RunView, page
from distdual.report.round_log import Round
from distdual.report.tracking import metrics
from tests.build import examples

MADE, OTHERS = examples(1, 300, 6), examples(2, 100, 6)


def line(scored: int, **scores: float) -> Round:
    return Round(0.0, 0, 0, False, 0.0, 1.0, 1.0, 1.0, 0, 0, 0, {}, scores=scores, scored=scored)


def config(tmp_path: Path, **given: Any) -> dict[str, Any]:
    prepare_arrays(MADE.x, MADE.y, tmp_path / "data", "binary", shard_bytes=2000)
    prepare_arrays(OTHERS.x, OTHERS.y, tmp_path / "other", "binary", shard_bytes=1000)
    return {
        "data": {"url": str(tmp_path / "data")},
        "problem": {"kind": "binary"},
        "solver": {"C": 10.0, "gap": 1e-4, "stream": "no"},
        "output": {"url": str(tmp_path / "model"), "log": str(tmp_path / "run.jsonl")},
        "eval": {"url": str(tmp_path / "other"), **given},
    }


class TestPatience:
    def test_it_ends_after_evaluations_without_a_better_score(self) -> None:
        history = [line(k, accuracy=score) for k, score in enumerate((0.5, 0.8, 0.8, 0.7))]
        assert too_patient(history[:3], 2) is None
        found = too_patient(history, 2)
        assert found == "the validation score accuracy has not improved for 2 evaluations"
        assert too_patient(history, 0) is None

    def test_a_loss_improves_downwards(self) -> None:
        history = [line(k, accuracy=0.5, loss=loss) for k, loss in enumerate((0.5, 0.4, 0.3))]
        assert too_patient(history, 1, "loss") is None
        assert "loss" in str(too_patient([*history, line(4, loss=0.3)], 1, "loss"))

    def test_lines_without_scores_do_not_count(self) -> None:
        history = [line(3, accuracy=0.5), *[line(-1)] * 5]
        assert too_patient(history, 1) is None
        assert last_scored(history) == 3
        assert last_scored([]) == -1


class TestRun:
    def test_each_certified_model_is_scored_and_the_scores_are_drawn(self, tmp_path: Path) -> None:
        result = distdual.train(from_table(config(tmp_path)))
        scored = [found for found in result.history if found.scores]
        assert scored
        predicted = distdual.predict(result.model, tmp_path / "other")
        assert scored[-1].scores == predicted.score
        assert len({found.scored for found in scored}) == len(scored)
        lines = read_log(tmp_path / "run.jsonl")
        assert "Validation over passes" in page(RunView(lines, "run"))
        assert metrics(scored[-1])["eval_accuracy"] == scored[-1].scores["accuracy"]
        assert any("evaluation of weights" in event for event in scored[0].events)

    def test_the_weights_are_those_of_a_run_without_evaluation(self, tmp_path: Path) -> None:
        table = config(tmp_path)
        evaluated = distdual.train(from_table(table))
        table["output"]["url"] += "2"
        del table["eval"]
        np.testing.assert_array_equal(evaluated.model.w, distdual.train(from_table(table)).model.w)

    def test_patience_stops_before_the_gap_is_proven(self, tmp_path: Path) -> None:
        table = config(tmp_path, patience=1)
        table["solver"] |= {"gap": 1e-9, "schedule": "ratio:1"}
        certificate = distdual.train(from_table(table)).certificate
        assert certificate["stopped_by"] == "validation"
        assert not certificate["certified"]
        assert "the validation score accuracy has not improved for 1 evaluation" in certificate["reason"]

    def test_compilation_is_an_event(self, tmp_path: Path) -> None:
        def compile_slowly(_: Round) -> None:
            if not told:
                watch.seconds += 62.0
            told.append(True)

        told: list[bool] = []
        history = distdual.train(from_table(config(tmp_path)), watch=compile_slowly).history
        said = [event for line in history[1:] for event in line.events if "compiled" in event]
        assert said == ["kernels were compiled for 1:02 min, once per installation"]

    def test_an_asynchronous_run_on_a_cluster(self, tmp_path: Path) -> None:
        table = config(tmp_path)
        table["solver"] |= {"mode": "async"}
        table["cluster"] = {"local": {"workers": 1, "threads": 1}}
        result = distdual.train(from_table(table))
        assert [found for found in result.history if found.scores]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"url": "OTHER", "score": "nonesuch", "patience": 99}, "eval.score is one of accuracy, got 'nonesuch'"),
            ({"url": "WIDE"}, "7 features, but the model was trained with 6"),
            ({"url": "SCALED"}, "was prepared with"),
            ({"url": "LABELS"}, "its labels are not those of"),
        ],
    )
    def test_data_that_cannot_be_scored_are_refused(self, tmp_path: Path, given: Any, message: str) -> None:
        table = config(tmp_path)
        prepare_arrays(np.ones((4, 7)), [0, 1, 0, 1], tmp_path / "WIDE", "binary")
        prepare_arrays(OTHERS.x, OTHERS.y, tmp_path / "SCALED", "binary", scale="unit-variance")
        prepare_arrays(OTHERS.x, OTHERS.y + 5, tmp_path / "LABELS", "binary")
        prepare_arrays(OTHERS.x, OTHERS.y, tmp_path / "OTHER", "binary")
        table["eval"] = {**given, "url": str(tmp_path / given["url"])}
        table["solver"] |= {"gap": 1e-9, "schedule": "ratio:1", "max_passes": 8}
        with pytest.raises(InputError, match=message):
            distdual.train(from_table(table))
        assert not (tmp_path / "model" / "model.json").exists()

    def test_runs_that_cannot_be_evaluated_refuse_it(self, tmp_path: Path) -> None:
        table = config(tmp_path)
        with pytest.raises(InputError, match=r"\[eval\] is not possible in a sweep"):
            distdual.sweep(table, [0.1], 2)
        with pytest.raises(InputError, match="eval is not possible with an exact kernel"):
            distdual.train({**table, "solver": {}, "kernel": {"kind": "rbf"}})


@pytest.mark.parametrize(
    "given", [{"patience": 1}, {"score": "loss"}, {"url": "x", "patience": -1}, {"url": "x", "score": "loss"}]
)
def test_options_that_mean_nothing_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"eval\."):
        replace(EvalConfig(), **given)
