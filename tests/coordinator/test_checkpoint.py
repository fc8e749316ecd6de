"""Whatever ends a run, another goes on from its last checkpoint, and the weights come out the same, bit for bit."""

import itertools
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from distdual import train, verify
from distdual.config import from_table
from distdual.coordinator.checkpoint import Checkpoint
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location, StorageError
from distdual.errors import InputError, Suspended
from tests.build import examples
from tests.s3_server import S3Server
from tests.shell import PROGRAMS, Ran, assert_refused, call, distdual, environment, run
from tests.test_interrupt import wait_for_lines

MADE = examples(0, 2400, 12, flip=0.3)
OFTEN = 1e-9  # seconds between checkpoints: as often as may be
KINDS: dict[str, dict[str, Any]] = {
    "single examples": {},
    "blocks": {"slack": "block:8", "offender_cache": 2},
    "one slack": {"slack": "all"},
    "short of memory": {"slack": "example", "cache_bytes": 60_000},
}
ONCE_MORE = {"one slack", "short of memory"}  # kinds that the slow tests kill at any moment; others do so always


def prepared(folder: Path, n: int = 2400) -> str:
    place = folder / f"data-{n}"
    if not place.exists():
        prepare_arrays(MADE.x[:n], MADE.y[:n], str(place), "binary", shard_bytes=48 * 300)
    return str(place)


def told(folder: Path, name: str = "model", *, n: int = 2400, output: Any = None, **solver: Any) -> dict[str, Any]:
    return {
        "data": {"url": prepared(folder, n)},
        "problem": {"kind": "binary", "bias": 1.0},
        "solver": {"C": 1.0, "gap": 1e-6, "max_passes": 12, **solver},
        "output": {"url": str(folder / name), **(output or {})},
    }


def after(n: int) -> Callable[[], bool]:
    """A function that says yes from its call number n on."""
    calls = itertools.count(1)
    return lambda: next(calls) >= n


def suspend(config: dict[str, Any], rounds: int = 3, **options: Any) -> None:
    with pytest.raises(Suspended, match=r"stopped on request; .*/checkpoint: continue with --resume"):
        train(config, terminated=after(rounds), **options)


def weights(model: Path) -> bytes:
    return (model / "weights.npy").read_bytes()


def killed(mode: str, folder: Path, config: dict[str, Any], *seeds: int) -> Any:
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps(config))
    ran = run(sys.executable, "-m", "tests.killing", mode, folder, *seeds, cwd=Path(__file__).parents[2], timeout=900)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def check_moments(tmp_path: Path, kind: str, seeds: list[int]) -> None:
    config = told(tmp_path, output={"checkpoint_every": OFTEN}, **KINDS[kind])
    for each in killed("moments", tmp_path / "runs", config, *seeds):
        lowers = [-np.inf if lower is None else lower for lower in each["lowers"]]
        assert lowers == sorted(lowers), each
        model = tmp_path / "runs" / str(each["seed"]) / "model"
        assert weights(model) == weights(tmp_path / "runs" / "whole" / "model"), each
        assert not (model / "checkpoint").exists()
        assert verify(str(model)).findings == ()


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] if kind in ONCE_MORE else []) for kind in KINDS]
)
def test_a_run_killed_at_any_moment_goes_on_and_ends_the_same_with(kind: str, tmp_path: Path) -> None:
    check_moments(tmp_path, kind, [1, 2, 3])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_twenty_times_a_run_killed_at_any_moment_goes_on_and_ends_the_same_with(kind: str, tmp_path: Path) -> None:
    check_moments(tmp_path, kind, list(range(20)))


def test_a_run_killed_while_it_writes_a_checkpoint_goes_on_from_the_one_before(tmp_path: Path) -> None:
    config = told(tmp_path, output={"checkpoint_every": OFTEN}, **KINDS["short of memory"])
    for write in killed("writes", tmp_path / "runs", config):
        model = tmp_path / "runs" / str(write) / "model"
        assert weights(model) == weights(tmp_path / "runs" / "whole" / "model"), write
        assert sorted(path.name for path in model.iterdir()) == [
            "certificate.json",
            "dual",
            "model.json",
            "weights.npy",
        ]


LONG = {"C": 3000.0, "gap": 1e-300, "max_passes": 300}
SLOW = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("cluster", "end"),
    [
        ("threads", signal.SIGTERM),
        pytest.param("dask", signal.SIGTERM, marks=SLOW),
        pytest.param("dask", signal.SIGKILL, marks=SLOW),
    ],
)
def test_the_command_line_goes_on_after(cluster: str, end: signal.Signals, tmp_path: Path) -> None:
    config = told(tmp_path, output={"log": str(tmp_path / "run.jsonl")}, **LONG)
    config["output"]["checkpoint_every"] = OFTEN if end == signal.SIGKILL else 0.0
    lines = [*toml(config), *(["cluster.local = { workers = 2 }"] if cluster == "dask" else [])]
    (tmp_path / "run.toml").write_text("\n".join(lines))
    code, out, err = ended_by(end, tmp_path)
    before = len((tmp_path / "run.jsonl").read_text().splitlines())
    described = json.loads(distdual("info", "model/checkpoint", "--json", cwd=tmp_path).out)
    assert described["what"] == "checkpoint"
    if end == signal.SIGTERM:
        place = f"{tmp_path}/model/checkpoint"
        assert (code, out) == (1, ""), err
        assert err.splitlines()[-1] == (
            f"distdual: stopped on request; the checkpoint is in {place}: continue with --resume"
        )
        assert described["rounds"] == before
    resumed = distdual("train", "run.toml", "--resume", "--json", cwd=tmp_path)
    assert resumed.code == 1, resumed  # the passes are done, the gap is not reached
    assert json.loads(resumed.out)["lower"] >= described["lower"]
    whole = train(told(tmp_path, "whole", **LONG))
    assert weights(tmp_path / "model") == weights(tmp_path / "whole")
    rounds = [json.loads(line)["version"] for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert rounds == [line.version for line in whole.history]


def ended_by(end: signal.Signals, folder: Path) -> Ran:
    """A run that got the signal after a few rounds."""
    process = subprocess.Popen(
        [PROGRAMS / "distdual", "train", "run.toml"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for_lines(folder / "run.jsonl", 5)
        process.send_signal(end)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return Ran(process.returncode, out, err)


def toml(config: dict[str, Any]) -> list[str]:
    return [f"{section}.{key} = {json.dumps(value)}" for section, keys in config.items() for key, value in keys.items()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_ended_over_and_over_leaves_nothing_but_its_model(kind: str, tmp_path: Path) -> None:
    whole = train(told(tmp_path, "whole", **KINDS[kind]))
    config = told(tmp_path, output={"log": str(tmp_path / "log")}, **KINDS[kind])
    suspend(config, 2)
    result = None
    while result is None:
        try:
            result = train(config, resume=True, terminated=after(3))
        except Suspended:
            continue
    assert result.model.w.tobytes() == whole.model.w.tobytes()
    assert [line.lower for line in result.history] == [line.lower for line in whole.history]
    assert len((tmp_path / "log").read_text().splitlines()) == len(whole.history)
    assert not (tmp_path / "model" / "checkpoint").exists()
    assert not (tmp_path / "model" / "run.json").exists()
    members = [len(list((tmp_path / name / "dual").glob("members-*/*"))) for name in ("model", "whole")]
    assert members[0] == members[1]


def test_on_s3_a_run_goes_on_as_on_a_disk(s3: S3Server, tmp_path: Path) -> None:
    whole = train(told(tmp_path, "whole", **KINDS["short of memory"]))
    output = {"url": s3.url("run"), "storage_options": s3.storage_options, "checkpoint_every": OFTEN}
    config = told(tmp_path, output=output, **KINDS["short of memory"])
    with pytest.raises(Suspended):
        train(config, terminated=after(4))
    folder = output["url"].removeprefix("s3://")
    assert s3.files().exists(f"{folder}/checkpoint/manifest.json")
    result = train(config, resume=True)
    assert result.model.w.tobytes() == whole.model.w.tobytes()
    names = [name.removeprefix(folder) for name in s3.files().find(folder)]
    assert not any("checkpoint" in name or "run.json" in name for name in names), names


def test_a_damaged_checkpoint_is_refused_by_the_name_of_the_file(tmp_path: Path) -> None:
    config = told(tmp_path, **KINDS["short of memory"])
    suspend(config, 12)
    files = sorted((tmp_path / "model" / "checkpoint").iterdir())
    assert len(files) == 7
    for file in files:
        content = file.read_bytes()
        for damage in (content[: len(content) // 2], b""):
            file.write_bytes(damage)
            with pytest.raises(InputError, match=file.name):
                train(config, resume=True)
        file.unlink()
        if file.name != "manifest.json":  # without it there is no checkpoint
            with pytest.raises(InputError, match=f"{file.name}: not found"):
                train(config, resume=True)
        file.write_bytes(content)
    assert train(config, resume=True).certificate["passes"] == 12


def test_files_of_members_that_are_gone_are_told(tmp_path: Path) -> None:
    config = told(tmp_path, slack="block:8")
    suspend(config)
    file = sorted((tmp_path / "model" / "dual").glob("members-*/*.npz"))[3]
    file.unlink()
    with pytest.raises(InputError, match=f"{file.name}: not found, but the checkpoint needs it"):
        train(config, resume=True)


def test_a_manifest_whose_write_seemed_to_fail_keeps_its_objects(tmp_path: Path) -> None:
    """As on S3, when only the answer is lost: what it names must not be overwritten."""
    write, answers = Location.write, itertools.count()

    def lost(place: Location, name: str, content: bytes) -> None:
        write(place, name, content)
        if name == "manifest.json" and next(answers) == 0:
            raise StorageError(f"{place}/{name}: the storage failed (TimeoutError)")

    config = told(tmp_path, output={"checkpoint_every": OFTEN})
    with patch("distdual.coordinator.checkpoint.REST", 0.0), patch.object(Location, "write", lost):
        suspend(config, 2)
    names = sorted(path.name for path in (tmp_path / "model" / "checkpoint").glob("*-rows.npz"))
    assert names == ["00000000-rows.npz", "00000001-rows.npz"]
    assert train(config, resume=True).certificate["certified"]


def test_a_checkpoint_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    config = told(tmp_path)
    suspend(config)
    manifest = tmp_path / "model" / "checkpoint" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 3}))
    with pytest.raises(InputError, match="checkpoint format 3, this version of distdual reads 2"):
        train(config, resume=True)


@pytest.mark.parametrize(
    ("section", "changed", "words"),
    [
        ("solver", {"C": 2.0}, r"a run with solver\.C = 1\.0, this one has 2\.0"),
        ("solver", {"seed": 1}, r"solver\.seed = 0, this one has 1"),
        ("solver", {"slack": "all"}, r"solver\.slack = auto, this one has all"),
        ("solver", {"cache_bytes": 1e6}, r"solver\.cache_bytes = None, this one has 1000000\.0"),
        ("problem", {"bias": 2.0}, r"problem\.bias = 1\.0, this one has 2\.0"),
        ("problem", {"class_cost": {"1": 2.0}}, r"problem\.class_cost"),
        ("prior", {"nonnegative": [1]}, r"prior\.nonnegative = None"),
        ("output", {"dual": "summary"}, r"output\.dual = full, this one has summary"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(section: str, changed: Any, words: str, tmp_path: Path) -> None:
    config = told(tmp_path)
    suspend(config)
    with pytest.raises(InputError, match=words):
        train({**config, section: {**config.get(section, {}), **changed}}, resume=True)


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    suspend(told(tmp_path, n=1200))
    prepare_arrays(MADE.x[1200:], MADE.y[1200:], str(tmp_path / "data-other"), "binary", shard_bytes=48 * 300)
    with pytest.raises(InputError, match=r"of other data than .*data-other: shard 0 differs"):
        train({**told(tmp_path), "data": {"url": str(tmp_path / "data-other")}}, resume=True)
    with pytest.raises(InputError, match=r"of other data than .*data-600: \d+ shards, it had \d+"):
        train(told(tmp_path, n=600), resume=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rounds", [1, 4], ids=["within a pass", "after a pass"])
def test_a_run_goes_on_with_more_data(kind: str, rounds: int, tmp_path: Path) -> None:
    options = {"max_passes": 500, **KINDS[kind]}
    suspend(told(tmp_path, n=1200, **options), rounds)
    manifest = json.loads((tmp_path / "model" / "checkpoint" / "manifest.json").read_text())
    result = train(told(tmp_path, gap=2e-2, **options), resume=True)
    assert result.certificate["certified"]
    assert result.certificate["lower"] >= manifest["summary"]["lower"]
    assert result.certificate["n_examples"] == 2400
    checked = verify(str(tmp_path / "model"))
    assert checked.findings == ()
    assert checked.upper == pytest.approx(result.certificate["upper"], rel=1e-9)


def test_the_gap_may_change_when_a_run_goes_on(tmp_path: Path) -> None:
    suspend(told(tmp_path))
    assert train(told(tmp_path, gap=0.05), resume=True).certificate["certified"]


def test_without_a_checkpoint_resume_begins_anew_and_says_so(tmp_path: Path, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        train(told(tmp_path), resume=True)
    assert caplog.messages == [f"there is no checkpoint in {tmp_path}/model: training starts from scratch"]


def test_without_resume_a_checkpoint_is_not_lost_unless_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = told(tmp_path, slack="block:8")
    suspend(config)
    (tmp_path / "run.toml").write_text("\n".join(toml(config)))
    refused = call(capsys, "train", tmp_path / "run.toml")
    assert_refused(refused, "model/checkpoint: a checkpoint of a run that has not ended; continue with --resume")
    before = list((tmp_path / "model" / "dual").iterdir())
    whole = train({**config, "output": {**config["output"], "overwrite": True}})
    assert whole.history[0].version == 1
    assert not (tmp_path / "model" / "checkpoint").exists()
    assert not before[0].exists()


def test_info_describes_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suspend(told(tmp_path))
    for place in ("model", "model/checkpoint"):
        found = json.loads(call(capsys, "info", tmp_path / place, "--json").out)
        assert found["what"] == "checkpoint"
        assert found["solver"]["C"] == 1.0
        assert found["data"]["examples"] == 2400
        assert found["rounds"] == 3


def test_ctrl_c_leaves_a_model_and_no_checkpoint(tmp_path: Path) -> None:
    result = train(told(tmp_path, output={"checkpoint_every": OFTEN}), interrupted=after(20))
    assert result.certificate["reason"] == "interrupted"
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "certificate.json",
        "dual",
        "model.json",
        "weights.npy",
    ]


def full_disk(first: int) -> Callable[..., None]:
    """Location.write, but writes to the checkpoint fail from this number on."""
    count, write = itertools.count(), Location.write

    def writing(place: Location, name: str, content: bytes) -> None:
        if place.url.endswith("/checkpoint") and next(count) >= first:
            raise StorageError(f"{place}/{name}: the storage failed (No space left on device)")
        write(place, name, content)

    return writing


@pytest.mark.parametrize("first", [0, 8])
def test_a_checkpoint_that_cannot_be_written_is_a_warning(first: int, tmp_path: Path, caplog: Any) -> None:
    with (
        patch("distdual.coordinator.checkpoint.REST", 0.0),
        patch.object(Location, "write", full_disk(first)),
        caplog.at_level(logging.WARNING),
    ):
        result = train(told(tmp_path, output={"checkpoint_every": OFTEN}))
    assert result.certificate["certified"]
    kept = "the one before is kept" if first else "there is none yet"
    assert f"no checkpoint was written, and training continues; {kept}" in caplog.messages[0]
    assert not (tmp_path / "model" / "checkpoint").exists()


def test_sigterm_says_so_where_no_checkpoint_can_be_written(tmp_path: Path) -> None:
    with (
        patch.object(Location, "write", full_disk(0)),
        pytest.raises(Suspended, match=r"no checkpoint could be written, there is no earlier one: .*No space"),
    ):
        train(told(tmp_path, slack="block:8"), terminated=after(3))
    assert not list((tmp_path / "model").rglob("*.npz"))


def test_a_run_that_fails_keeps_its_checkpoint(tmp_path: Path) -> None:
    config = told(tmp_path, slack="block:8", output={"checkpoint_every": OFTEN})
    rounds = itertools.count()

    def fail(_: Any) -> None:
        if next(rounds) == 6:
            raise RuntimeError("the cluster is gone")

    with pytest.raises(RuntimeError, match="the cluster is gone"):
        train(config, watch=fail)
    assert (tmp_path / "model" / "checkpoint" / "manifest.json").exists()
    train(config, resume=True)
    train(told(tmp_path, "whole", slack="block:8"))
    assert weights(tmp_path / "model") == weights(tmp_path / "whole")


def test_writing_takes_at_most_a_tenth_of_the_time(tmp_path: Path) -> None:
    clock = itertools.count()  # a second a look

    with patch("distdual.coordinator.checkpoint.time.monotonic", lambda: float(next(clock))):
        checkpoint = Checkpoint(Location(str(tmp_path)), 1.0, {})
        with patch.object(Checkpoint, "write", lambda *_: [next(clock) for _ in range(99)]):
            checkpoint.between(None)  # type: ignore[arg-type]
        assert checkpoint.due - next(clock) >= 990


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_a_time_between_checkpoints_must_be_one(seconds: float, tmp_path: Path) -> None:
    config = told(tmp_path, output={"checkpoint_every": seconds})
    with pytest.raises(InputError, match=r"output\.checkpoint_every must be a number of seconds"):
        from_table(config)
