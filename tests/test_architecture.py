"""Imports go one way, in the order data flows, and each outside library has one home."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import distdual
from distdual.problems.registry import KINDS

ROOT = Path(distdual.__file__).parent

ORDER = [
    "errors",
    "memory",
    "schema",
    "json_floats",
    "interrupt",
    "field_docs",
    "config",
    "kernels",
    "feature_maps",
    "data",
    "problems",
    "data/prepare",  # asks the problems what they are made of
    "scan",
    "cluster",
    "solver",
    "expansion",
    "model",
    "certificate",
    "report",
    "coordinator",
    "jobs",
    "problems/user/self_check",  # runs scans
    "testing",
    "estimators",
    "quickstart",
    "warm_up",
    "cli",
    "distdual_check",  # shares no code with the others
]

HOMES = {
    "distributed": ["cluster/", "jobs/"],
    "dask": ["cluster/dask_client.py", "cluster/collection.py", "data/sources/", "data/prepare/partition_writer.py"],
    "zarr": ["data/"],
    "fsspec": ["data/"],
    "s3fs": ["data/"],
    "pyarrow": [],  # imported by name, where it is installed: data/sources/arrow.py
    "pandas": [],
    "polars": [],
    "onnx": ["model/onnx_export.py"],
    "skl2onnx": ["estimators/onnx_converter.py"],
    "numba": ["kernels/jit.py", "kernels/simd.py", "kernels/compile_cache.py"],
    "click": ["cli/"],
    "matplotlib": ["report/plots.py"],
    "mlflow": ["report/tracking.py"],
    "tensorboardX": ["report/tracking.py"],
    "pickle": ["testing.py"],  # checks that problems can be sent to workers
    "cloudpickle": [],
    "joblib": [],
    "dill": [],
    "marshal": [],
    "shelve": [],
}

CERTIFICATE_KEY = "the key of certificate.json under which the trace of a latent run is"
OTHER_MEANINGS = {  # words equal to the name of a problem kind, outside problems/, that mean something else
    ("cli/show.py", "latent"): CERTIFICATE_KEY,
    ("coordinator/solve.py", "latent"): CERTIFICATE_KEY,
    ("estimators/latent.py", "latent"): CERTIFICATE_KEY,
    ("report/latent_chart.py", "latent"): CERTIFICATE_KEY,
    ("report/write_report.py", "latent"): CERTIFICATE_KEY,
    ("model/schema.py", "latent"): CERTIFICATE_KEY,
    ("model/io.py", "latent"): "the array of a model folder that holds the latent values",
}

COMMAND = "a command and the function that it calls"
ROLE = "a kernel with the same role in each problem"
ALIAS = "the same type"
ONE_MEANING = {  # names that several modules define at their top, with the meaning that they share
    "log": "the logger of the module",
    "__all__": "the public names of the module",
    "T": "a type variable",
    **dict.fromkeys(("calibrate", "predict", "prepare", "submit", "sweep", "train", "verify", "warm_up"), COMMAND),
    **dict.fromkeys(("find_worst", "find_best", "find_losses", "fill_rows", "most_values"), ROLE),
    **dict.fromkeys(("Arrays", "Bytes"), ALIAS),
    "ROUNDING": "by how much Σ α may exceed C",
}

FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


@cache
def nodes(file: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))))


def imports(file: str) -> Iterator[str]:
    """Full names of all modules that a file imports, at the top or inside functions."""
    for node in nodes(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} line {node.lineno}: imports are written in full"
            assert node.module is not None
            yield node.module
            if node.module == "distdual":
                yield from (f"distdual.{alias.name}" for alias in node.names)


def part_of(name: str) -> str:
    """The entry of ORDER that a module or a path belongs to: the longest that its path begins with."""
    path = name.removeprefix("distdual.").replace(".py", "").replace(".", "/")
    return max((part for part in ORDER if f"{path}/".startswith(f"{part}/")), key=len, default=path)


def test_every_part_has_its_place_in_the_order():
    assert {part_of(file) for file in FILES} - {"__init__", "__main__"} <= set(ORDER)


@pytest.mark.parametrize("file", [file for file in FILES if part_of(file) in ORDER])
def test_imports_go_one_way_in(file):
    own = ORDER.index(part_of(file))
    for name in imports(file):
        target = part_of(name)
        if name.startswith("distdual.") and target in ORDER:
            assert ORDER.index(target) <= own, f"{file} imports {name}, which comes later in the flow of data"


def test_the_independent_check_shares_no_code():
    """Nor does any other module use it."""
    assert not [name for name in imports("distdual_check.py") if name.startswith(("distdual", "numba", "zarr"))]
    assert not [file for file in FILES if "distdual.distdual_check" in imports(file)]


@pytest.mark.parametrize("library", HOMES)
def test_one_home_has(library):
    strangers = [
        file
        for file in FILES
        if any(name.split(".")[0] == library for name in imports(file))
        and not any(file == home or (home.endswith("/") and file.startswith(home)) for home in HOMES[library])
    ]
    assert strangers == []


def words(file: str) -> set[str]:
    """All string literals of a file but docstrings."""
    docs = {id(node.value) for node in nodes(file) if isinstance(node, ast.Expr)}
    literals = [node for node in nodes(file) if isinstance(node, ast.Constant) and id(node) not in docs]
    return {node.value for node in literals if isinstance(node.value, str)}


def test_only_problems_name_the_kinds_of_problems():
    """What holds for some problems only, each declares in its class: see `Problem.data_spec`."""
    outside = [file for file in FILES if not file.startswith("problems/") and file != "distdual_check.py"]
    named = {(file, kind) for file in outside for kind in words(file) & set(KINDS)}
    assert named == set(OTHER_MEANINGS)


def top_level(file: str) -> Iterator[str]:
    """The names that a module defines at its top."""
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def test_a_name_has_one_meaning():
    """Rename one of two things of one name, or say in ONE_MEANING what both are."""
    names = Counter(name for file in FILES if file != "distdual_check.py" for name in set(top_level(file)))
    assert {name for name, n in names.items() if n > 1} - set(ONE_MEANING) == set()


def test_numpy_is_told_each_time_not_to_unpickle():
    for file in FILES:
        for node in nodes(file):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("np.load", "np.lib.format.read_array"):
                told = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert told.get("allow_pickle") == "False", f"{file} line {node.lineno}"


def test_allow_pickle_is_never_true():
    for file in FILES:
        for node in nodes(file):
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), file
                assert node.value.value is False, file
