"""`distdual check-problem` passes what is right, and names what is wrong with the rest."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distdual import UserProblem
from distdual.data.prepare.api import prepare_arrays
from distdual.problems.user import self_check
from distdual.problems.user.self_check import check_problem
from tests.problems import mine
from tests.shell import assert_refused, call, environment, run

NAMES = [
    "outputs",
    "loss",
    "argmax",
    "rows",
    "kernels",
    "prediction",
    "deterministic",
    "travels",
    "threads",
    "speed",
]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "MEASURE", 0.01)
    monkeypatch.setattr(self_check, "N_EXAMPLES", 12)
    monkeypatch.setenv("DASK_LOGGING__DISTRIBUTED", "critical")


def failed(cls: Any, **options: Any) -> dict[str, str]:
    found = check_problem(cls, **options)
    assert [check.name for check in found] == NAMES
    return {check.name: check.sentence for check in found if not check.ok}


@pytest.mark.parametrize("cls", [mine.PlainMulticlass, mine.SparseMulticlass, mine.FastMulticlass, mine.Lazy])
def test_a_good_problem_passes(cls):
    assert failed(cls) == {}


FAULTS = [
    (mine.Overconfident, "argmax", "is not the best for example"),
    (mine.Costly, "loss", r"loss\(y, y\) is 1 for the right output"),
    (mine.Generous, "loss", "is -1, not 0 or more"),
    (mine.Fickle, "deterministic", "other offenders the second time|argmax is not the best"),
    (mine.Rooted, "travels", "cannot be pickled"),
    (mine.Forgetful, "outputs", r"turn the output \(\d,\) of example \d+ into \(0,\)"),
    (mine.Forgetful, "rows", "margin − ⟨w, row⟩ is"),
    (mine.Wide, "rows", "must return 12 values"),
    (mine.Wild, "rows", "weights from 0 to 11"),
    (mine.Raising, "argmax", "raised ZeroDivisionError: no luck"),
    (mine.WrongKernel, "kernels", "constraints builds another row or margin"),
]


@pytest.mark.parametrize(("cls", "check", "sentence"), FAULTS, ids=[f"{cls.__name__}, {at}" for cls, at, _ in FAULTS])
def test_a_fault_is_named(cls, check, sentence):
    found = failed(cls)
    assert re.search(sentence, found[check]), found


def test_outputs_that_cannot_be_listed_are_compared_with_some(monkeypatch):
    monkeypatch.setattr(mine.PlainMulticlass, "outputs", UserProblem.outputs)
    argmax = next(check for check in check_problem(mine.PlainMulticlass) if check.name == "argmax")
    assert argmax.ok
    assert "some outputs only" in argmax.sentence
    assert "argmax" in failed(mine.Overconfident) or "prediction" in failed(mine.Overconfident)


def test_the_command_prints_a_line_a_check(capsys):
    ran = call(capsys, "check-problem", "tests.problems.mine:PlainMulticlass", "--set", "scale=2")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert [line.split()[:2] for line in lines] == [["ok", name] for name in NAMES]
    assert "examples a second" in lines[-1]
    ran = call(capsys, "check-problem", "tests.problems.mine:Costly")
    assert ran.code == 1
    failures = [line.split()[1] for line in ran.out.splitlines() if line.startswith("FAILED")]
    assert failures[:2] == ["loss", "argmax"]  # then all that scans: an oracle that breaks its contract stops those


def test_the_command_prints_json(capsys):
    ran = call(capsys, "check-problem", "tests.problems.mine:Costly", "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["ok"]) == (1, False)
    assert [check["name"] for check in told["checks"]] == NAMES


def test_examples_come_from_a_data_set(capsys, tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 6)), np.arange(30) % 5
    prepare_arrays(x, y, str(tmp_path / "data"), "multiclass")
    ran = call(capsys, "check-problem", "tests.problems.mine:PlainMulticlass", "--data", tmp_path / "data")
    assert ran.code == 0, ran.out
    assert "of 180 values, all outputs" in ran.out  # 12 examples, 3 weights, 5 outputs


def test_a_module_in_the_current_folder_is_found(tmp_path: Path):
    source = Path(mine.__file__).read_text(encoding="utf-8")
    (tmp_path / "my_problem.py").write_text(source, encoding="utf-8")
    ran = run("distdual", "check-problem", "my_problem:FastMulticlass", cwd=tmp_path, env=environment())
    assert ran.code == 0, ran


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere:Thing"], ["no module nowhere"]),
        (["nonsense"], ["expected package.module:Class"]),
        (["tests.problems.mine:NOT_A_PROBLEM"], ["subclass of distdual.UserProblem"]),
        (["tests.problems.mine:Unfinished"], ["must be defined"]),
        (["tests.problems.mine:Lazy", "--data", "nowhere"], ["nowhere", "no data set"]),
        (["tests.problems.mine:Lazy", "--set", "skale=1"], ["did you mean problem.scale"]),
        (["tests.problems.mine:Lazy", "--set", "scale"], ["expected key=value"]),
        (["tests.problems.mine:Lazy", "--set", "n_features=0"], ["n_features", "whole number"]),
        (["tests.problems.mine:Lazy", "--set", "classes=3"], ["list of labels"]),
    ],
)
def test_what_is_no_problem_is_bad_input(arguments, words, capsys):
    assert_refused(call(capsys, "check-problem", *arguments), *words)
