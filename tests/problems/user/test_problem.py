"""A user's own problem keeps the contract, reaches the built-in optimum, and is loaded only when the user names it."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdual
from distdual.cli.info import describe
from distdual.cluster.dask_client import connect
from distdual.cluster.user_code import code_of
from distdual.config import ClusterConfig, LocalCluster
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare_arrays
from distdual.data.shard import Shard
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rows import CsrRows, DenseRows
from distdual.problems.registry import make_problem, problem_from
from distdual.problems.user.rows import smaller_form
from distdual.problems.user.self_check import check_problem
from distdual.testing import ProblemContract, every_output
from tests import naive
from tests.build import examples
from tests.problems import mine
from tests.problems.test_multiclass import CLASSES, three_classes
from tests.shell import assert_refused, call, environment, run

NAME = "tests.problems.mine:PlainMulticlass"


def every_class(problem: Any, shard: Shard, i: int) -> dict[tuple[int, ...], tuple[Any, float, float]]:
    """All outputs, the right one too: its row is zero."""
    features, y = naive.dense(shard.x, problem.n_features)[i], int(shard.y[i])
    found = {}
    for j in range(len(problem.classes)):
        blocks = np.zeros((len(problem.classes), len(features)))
        blocks[y] += features
        blocks[j] -= features
        cost = 1.0 if shard.cost is None else float(shard.cost[i])
        found[(j,)] = (blocks.ravel(), problem.scale * (j != y), cost)
    return found


@pytest.mark.parametrize("problem", [mine.PlainMulticlass, mine.SparseMulticlass])
def test_the_contract_enumerates_the_outputs_of_a_problem(problem):
    made, shard = problem(n_features=4, classes=CLASSES, scale=2.5), three_classes(0, cost=True)
    for i in range(shard.n_examples):
        found, expected = every_output(made, shard, i), every_class(made, shard, i)
        assert found.keys() == expected.keys()
        for key, (row, margin, cost) in found.items():
            np.testing.assert_allclose(row, expected[key][0], rtol=1e-6)
            assert (margin, cost) == expected[key][1:]


class OwnContract(ProblemContract):
    every_constraint = staticmethod(every_class)

    def test_it_comes_back_from_its_description(self):
        description = json.loads(json.dumps(self.problem.describe()))
        assert problem_from(description, type(self.problem)) == self.problem
        assert problem_from(description, self.problem.kind) == self.problem


class TestPlain(OwnContract):
    problem = mine.PlainMulticlass(n_features=4, classes=CLASSES, scale=2.5)
    shard = three_classes(0, cost=True)


class TestOnSparseVectors(OwnContract):
    problem = mine.SparseMulticlass(n_features=4, classes=CLASSES)
    shard = three_classes(1)


def problem_of(kind: str) -> dict[str, Any]:
    return {"kind": f"tests.problems.mine:{kind}"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = examples(5, 60, 4)
    y = np.random.default_rng(5).integers(3, size=60)
    y[made.x[:, 0] > 0.3] = 2
    place = str(tmp_path_factory.mktemp("own") / "data")
    prepare_arrays(made.x, np.array(CLASSES)[y], place, "multiclass", shard_bytes=300)
    return place


def config(data: str, folder: Path, problem: dict[str, Any], **solver: Any) -> dict[str, Any]:
    return {
        "data": {"url": data},
        "problem": problem,
        "solver": {"C": 0.2, "gap": 1e-6, **solver},
        "output": {"url": str(folder / "model"), "overwrite": True},
    }


@pytest.mark.parametrize("kind", ["PlainMulticlass", "SparseMulticlass", "FastMulticlass"])
def test_written_by_a_user_a_problem_has_the_optimum_of_the_one_built_in(data, tmp_path, kind):
    ours = distdual.train(config(data, tmp_path, problem_of(kind))).certificate
    checked = distdual.verify(str(tmp_path / "model"), problem=f"tests.problems.mine:{kind}")
    assert checked.certified, checked.findings
    built_in = distdual.train(config(data, tmp_path, {"kind": "multiclass"})).certificate
    assert ours["certified"]
    assert ours["lower"] == pytest.approx(built_in["lower"], rel=2e-6)
    assert ours["estimate"] is None


@pytest.mark.slow
def test_it_runs_on_two_processes_and_gives_the_same_weights(data, tmp_path):
    alone = distdual.train(config(data, tmp_path, problem_of("PlainMulticlass")))
    with connect(ClusterConfig(local=LocalCluster(workers=2))) as client:
        both = distdual.train(config(data, tmp_path, problem_of("PlainMulticlass")), client)
        checked = distdual.verify(str(tmp_path / "model"), client=client, problem=NAME)
    assert checked.certified
    np.testing.assert_array_equal(both.model.w, alone.model.w)


def test_a_single_file_is_sent_to_workers_that_do_not_have_it(data, tmp_path, monkeypatch):
    source = "from tests.problems.mine import PlainMulticlass\n\n\nclass Sent(PlainMulticlass):\n    pass\n"
    (tmp_path / "sent_problem.py").write_text(source)
    with connect(ClusterConfig(local=LocalCluster(workers=2))) as client:  # started before the path has the folder
        monkeypatch.syspath_prepend(tmp_path)
        result = distdual.train(config(data, tmp_path, {"kind": "sent_problem:Sent"}), client)
    assert result.certificate["certified"]
    assert code_of("sent_problem") == {"sent_problem.py": source.encode()}
    sys.modules.pop("sent_problem")


FAMILY = {
    "main_part.py": "import os\nimport helper_part\nfrom kit_part.inner import Base\nfrom numpy import linalg\n"
    "class Sent(Base):\n    def loss(self, y_true, y):\n        import late_part\n"
    "        return late_part.double(helper_part.half(super().loss(y_true, y)))\n",
    "helper_part.py": "def half(x):\n    return x / 2\n",
    "late_part.py": "def double(x):\n    return 2 * x\n",
    "kit_part/__init__.py": "",
    "kit_part/inner.py": "from tests.problems.mine import PlainMulticlass\nclass Base(PlainMulticlass):\n    pass\n",
    "unrelated_part.py": "raise RuntimeError\n",
}


@pytest.fixture
def family(tmp_path, monkeypatch):
    """A module with siblings, one of them imported late, and with a package beside it."""
    for name, source in FAMILY.items():
        (tmp_path / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "code" / name).write_text(source)
    yield tmp_path / "code"
    for name in [name for name in sys.modules if "_part" in name.partition(".")[0]]:
        del sys.modules[name]


def test_what_a_module_imports_beside_it_goes_along(family, monkeypatch):
    monkeypatch.syspath_prepend(family)
    __import__("main_part")
    assert set(code_of("main_part")) == FAMILY.keys() - {"unrelated_part.py"}
    __import__("kit_part.inner")
    assert set(code_of("kit_part.inner")) == {"kit_part/__init__.py", "kit_part/inner.py"}


def test_one_process_trains_on_two_clusters_one_after_the_other(family, data, tmp_path, monkeypatch):
    """The workers find siblings and packages, and the second cluster the source that was given."""
    alone, lowers = None, []
    for k in range(2):
        with connect(ClusterConfig(local=LocalCluster(workers=1))) as client:  # started without the folder on the path
            with monkeypatch.context() as patch:
                patch.syspath_prepend(family)
                own = {"kind": "main_part:Sent"} if k == 0 else {"kind": "kit_part.inner:Base"}
                told = config(data, tmp_path / str(k), own, gap=1e-2)
                lowers.append(distdual.train(told, client).certificate["lower"])
            assert sys.modules["main_part"].__file__ == str(family / "main_part.py")
            if k == 0:
                alone = lowers[0]
    assert lowers == [pytest.approx(alone)] * 2


def test_a_changed_module_replaces_the_one_that_workers_have(data, tmp_path, monkeypatch):
    lowers = []
    with connect(ClusterConfig(local=LocalCluster(workers=1))) as client:
        monkeypatch.syspath_prepend(tmp_path)
        for scale in (1.0, 2.0):
            source = (
                "from dataclasses import dataclass\nfrom tests.problems.mine import PlainMulticlass\n"
                f"@dataclass(frozen=True, kw_only=True)\nclass Sent(PlainMulticlass):\n    scale: float = {scale}\n"
            )
            (tmp_path / "edited_problem.py").write_text(source)
            sys.modules.pop("edited_problem", None)
            told = config(data, tmp_path / str(scale), {"kind": "edited_problem:Sent"}, gap=1e-2)
            lowers.append(distdual.train(told, client).certificate["lower"])
    sys.modules.pop("edited_problem")
    assert lowers[1] > 1.5 * lowers[0]


def test_a_module_beside_the_config_is_found_and_sent(data, tmp_path):
    (tmp_path / "runs").mkdir()
    source = Path(mine.__file__).read_text(encoding="utf-8")
    (tmp_path / "runs" / "beside.py").write_text(source, encoding="utf-8")
    text = f'data.url = "{data}"\nproblem.kind = "beside:PlainMulticlass"\noutput.url = "model"\n'
    (tmp_path / "runs" / "run.toml").write_text(f"{text}solver.gap = 0.1\ncluster.local.workers = 2\n")
    ran = run("distdual", "train", "runs/run.toml", cwd=tmp_path, env=environment())
    assert ran.code == 0, ran
    assert ran.out.startswith("certified")
    assert_refused(run("distdual", "verify", "model", cwd=tmp_path, env=environment()), "--problem beside:")


class Hangs(mine.PlainMulticlass):
    oracle_seconds = 0.5

    def argmax(self, w, x, y_true):
        while True:
            pass


class AnotherType(mine.PlainMulticlass):
    def argmax(self, w, x, y_true):
        return None


class TooShort(mine.PlainMulticlass):
    def offenders(self, w, shard):
        found = super().offenders(w, shard)
        return found._replace(slack=found.slack[:-1])


class OnlySlack(mine.PlainMulticlass):
    def offenders(self, w, shard):
        return super().offenders(w, shard).slack


FAULTY = {
    Hangs: r"example \d+: did not return within 0.5 s \(oracle_seconds of its class\), in shard \d",
    AnotherType: r"example \d+: raised TypeError: .*, in shard \d",
    TooShort: r"offenders of shard \d: slack is \d+ numbers of type float64, expected \d+ numbers",
    OnlySlack: r"offenders of shard \d: returned ndarray, expected Offenders",
}


@pytest.mark.parametrize("cls", FAULTY)
def test_a_faulty_oracle_ends_the_run_with_one_sentence(cls, data, tmp_path):
    told = config(data, tmp_path, {"kind": f"{__name__}:{cls.__name__}"})
    with pytest.raises(InputError, match=FAULTY[cls]):
        distdual.train(told)
    assert not (tmp_path / "model").exists()
    assert not all(check.ok for check in check_problem(cls))


def test_installed_modules_are_not_sent():
    assert code_of("numpy.linalg") == {}
    assert code_of("json") == {}
    assert code_of("distdual.problems.binary") == {}
    assert code_of("__main__") == {}


# --- inexact inference


def test_inexact_inference_gives_an_estimate_and_no_certificate(data, tmp_path):
    found = distdual.train(config(data, tmp_path, problem_of("Lazy"), gap=1e-3))
    certificate = found.certificate
    assert (certificate["certified"], certificate["upper"], certificate["gap"]) == (False, None, None)
    assert certificate["estimate"] == pytest.approx(certificate["lower"], rel=1e-3)
    assert "inexact" in certificate["reason"]
    written = json.loads((tmp_path / "model" / "certificate.json").read_text(), parse_constant=pytest.fail)
    assert written["upper"] is None

    checked = distdual.verify(str(tmp_path / "model"), problem=mine.Lazy)
    assert not checked.certified
    assert checked.upper == np.inf
    assert checked.lower == pytest.approx(certificate["lower"], rel=1e-9)
    assert checked.estimate == pytest.approx(certificate["estimate"], rel=1e-9)
    (finding,) = checked.findings
    assert "inference is inexact" in finding

    best = distdual.train(config(data, tmp_path, {"kind": "multiclass"})).certificate
    assert certificate["lower"] <= best["upper"]


def test_inexact_inference_stops_at_its_limits_too(data, tmp_path):
    found = distdual.train(config(data, tmp_path, problem_of("Lazy"), gap=1e-9, max_passes=1))
    assert found.certificate["estimate"] > 0
    assert found.certificate["reason"] == "1 passes are done"


def test_the_command_line_ends_with_1_where_nothing_is_proven(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DASK_LOGGING__DISTRIBUTED", "critical")
    text = f'data.url = "{data}"\nproblem.kind = "tests.problems.mine:Lazy"\noutput.url = "{tmp_path}/model"\n'
    (tmp_path / "run.toml").write_text(text)
    ran = call(capsys, "train", tmp_path / "run.toml", "--json")
    assert ran.code == 1
    told = json.loads(ran.out)
    assert (told["certified"], told["upper"], told["gap"]) == (False, None, None)
    assert told["estimate"] > 0
    ran = call(capsys, "train", tmp_path / "run.toml", "--set", "output.overwrite=true")
    assert ran.code == 1
    assert ran.out.startswith("NOT certified: ")
    ran = call(capsys, "verify", tmp_path / "model", "--problem", "tests.problems.mine:Lazy")
    assert ran.code == 1
    assert "inference is inexact" in ran.out
    ran = call(capsys, "verify", tmp_path / "model", "--problem", "tests.problems.mine:Lazy", "--json")
    assert json.loads(ran.out)["upper"] is None


# --- whose code is run


@pytest.fixture
def model(data, tmp_path) -> str:
    distdual.train(config(data, tmp_path, problem_of("PlainMulticlass"), gap=0.1))
    return str(tmp_path / "model")


def test_a_model_alone_makes_nobody_import_code(model, data, tmp_path, capsys, monkeypatch):
    about = Path(model) / "model.json"
    about.write_text(about.read_text().replace("tests.problems.mine:", "evil_module:"))
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for look in (distdual.verify, lambda place: distdual.predict(place, data)):
        with pytest.raises(InputError, match=r"name it: --problem evil_module:PlainMulticlass"):
            look(model)
    assert describe(Location(model))["problem"]["kind"] == "evil_module:PlainMulticlass"
    assert_refused(call(capsys, "verify", model), "--problem evil_module:PlainMulticlass")
    assert_refused(call(capsys, "predict", model, data, "--out", "labels.txt"), "--problem evil_module:PlainMulticlass")
    assert "evil_module" not in sys.modules


def test_another_problem_than_the_model_has_is_refused(model):
    with pytest.raises(InputError, match=r"PlainMulticlass, not tests\.problems\.mine:FastMulticlass"):
        distdual.verify(model, problem=mine.FastMulticlass)


def test_a_forged_key_that_names_no_output_proves_nothing(model):
    """−1 would be taken for the last class, with a loss where that class is right: a lower bound that is none."""
    file = Path(model) / "dual" / "key_values.npy"
    np.save(file, np.full_like(np.load(file), -1))
    with pytest.raises(InputError, match=r"example \d+ has no output that \(-1,\) names"):
        distdual.verify(model, problem=NAME)


def test_predictions_are_labels_and_have_a_score(model, data, tmp_path, capsys):
    found = distdual.predict(model, data, problem=NAME)
    assert set(found.labels) <= set(CLASSES)
    shard = open_dataset(Location(data)).read(0).shard
    problem = mine.PlainMulticlass(n_features=4, classes=CLASSES)
    w = distdual.load_model(Location(model), NAME).w
    np.testing.assert_array_equal(np.array(CLASSES)[problem.predict(w, shard)], found.labels[: shard.n_examples])
    ran = call(capsys, "predict", model, data, "--out", tmp_path / "labels.txt", "--problem", NAME)
    assert ran.code == 0
    assert f"loss {found.score['loss']:.4f}" in ran.out


def test_a_run_may_start_from_a_model_of_the_same_problem(model, data, tmp_path):
    told = config(data, tmp_path / "next", problem_of("PlainMulticlass"), start=model)
    assert distdual.train({**told, "prior": {}}).certificate["certified"]


# --- bad input


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("nowhere.at_all:Thing", "no module nowhere"),
        ("tests.problems.mine:Missing", "has no class Missing"),
        ("tests.problems.mine:NOT_A_PROBLEM", "subclass of distdual.UserProblem"),
        ("tests.problems.mine:Unfinished", "argmax, feature_map, n_weights must be defined"),
        ("tests.problems.mine:", "expected package.module:Class"),
        ("../mine:Thing", "expected package.module:Class"),
    ],
)
def test_names_that_lead_nowhere_are_refused(kind, message):
    with pytest.raises(InputError, match=message):
        make_problem(kind, {}, n_features=4, classes=CLASSES)


def test_a_module_that_cannot_be_imported_is_told(tmp_path, monkeypatch):
    (tmp_path / "broken_module.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="importing broken_module failed: ZeroDivisionError"):
        make_problem("broken_module:Thing", {}, n_features=4, classes=CLASSES)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"skale": 1.0}, "did you mean problem.scale"), ({"scale": "much"}, "problem.scale must be a number")],
)
def test_its_options_are_its_fields(options, message):
    assert make_problem(NAME, {"scale": 2}, n_features=4, classes=CLASSES).scale == 2.0
    with pytest.raises(InputError, match=message):
        make_problem(NAME, options, n_features=4, classes=CLASSES)


@pytest.mark.parametrize(
    ("cls", "message"), [(mine.Wide, "must return 12 values"), (mine.Wild, "weights from 0 to 11")]
)
def test_a_feature_map_that_would_hurt_a_kernel_is_refused(cls, message):
    with pytest.raises(InputError, match=message):
        cls(n_features=4, classes=CLASSES).offenders(np.zeros(12), three_classes(0))


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("Raising", "raised ZeroDivisionError: no luck"),
        ("Leaving", "raised SystemExit: 0"),
        ("Idle", r".*argmax is not the best: it gives \(\d,\) with slack 0, \(\d,\) has 1; correct it, or set exact"),
        ("Boundless", r".*loss is nan for the output \(\d,\); it must be a finite number from 0"),
    ],
)
def test_what_is_wrong_with_its_code_is_told_with_the_example(kind, sentence, data, tmp_path):
    with pytest.raises(InputError, match=rf"mine:{kind}: example \d+[^a-z]*{sentence}"):
        distdual.train(config(data, tmp_path, problem_of(kind)))
    assert not (tmp_path / "model" / "model.json").exists()


def test_a_data_set_is_prepared_for_a_users_problem(capsys, tmp_path):
    np.savez(tmp_path / "x.npz", X=np.eye(4, dtype=np.float32), y=[0, 1, 0, 2])
    ran = call(capsys, "prepare", tmp_path / "x.npz", tmp_path / "dest", "--problem", NAME)
    assert ran.code == 0, ran.err
    assert open_dataset(Location(str(tmp_path / "dest"))).layout.kind == NAME
    assert_refused(call(capsys, "prepare", "x.npz", "dest", "--problem", "a:B"), "no module a")


# --- rows


def test_rows_take_the_smaller_form():
    rows = CsrRows(np.arange(0, 8, 2), np.tile(np.int32([1, 3]), 3), np.tile(np.float32([1, 2]), 3))
    wide, narrow = smaller_form(rows, 100), smaller_form(rows, 4)
    assert isinstance(wide, CsrRows)
    assert isinstance(narrow, DenseRows)
    np.testing.assert_array_equal(naive.dense(wide, 100)[:, :4], naive.dense(narrow, 4))


class Sequences(mine.PlainMulticlass):
    """Outputs of two numbers."""

    def truth(self, label: int) -> tuple[int, int]:
        return (int(label), 7)

    def feature_map(self, x: Any, y: tuple[int, int]) -> Any:
        return super().feature_map(x, y[0])

    def argmax(self, w: Any, x: Any, y_true: tuple[int, int]) -> tuple[int, int]:
        return (super().argmax(w, x, y_true[0]), 7)

    def predict_one(self, w: Any, x: Any) -> tuple[int, int]:
        return (super().predict_one(w, x), 7)


def test_outputs_of_several_numbers_are_predicted_as_text():
    problem, shard = Sequences(n_features=4, classes=CLASSES), three_classes(0)
    w = np.random.default_rng(0).normal(size=12)
    plain = mine.PlainMulticlass(n_features=4, classes=CLASSES)
    predicted = problem.predict(w, shard)
    assert predicted.tolist() == [f"{label} 7" for label in plain.predict(w, shard)]
    assert problem.score(shard.y, predicted) == plain.score(shard.y, plain.predict(w, shard))
    np.testing.assert_array_equal(problem.offenders(w, shard).slack, plain.offenders(w, shard).slack)
