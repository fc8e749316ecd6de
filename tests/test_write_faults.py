"""Whatever fails while something is written, the old or the new is there afterwards, and a sentence says how to go on.

The other half of docs/faults.md: tests/test_faults.py has the faults of clusters.
"""

import contextlib
import datetime
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import botocore.auth
import numpy as np
import pytest

from distdual import train, verify
from distdual.cluster.resources import Resources
from distdual.coordinator.run_output import UnsavedError
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage import claim as claims
from distdual.data.storage.claim import claimed
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.model.io import load_model
from distdual.model.predict import predict_to
from tests.build import examples, write
from tests.s3_proxy import proxy_of
from tests.s3_server import S3Server
from tests.shell import run

MADE = examples(0, 600, 6, flip=0.3)
OTHER = examples(1, 600, 6, flip=0.3)
TIMES = [pytest.param(1), pytest.param(20, marks=pytest.mark.slow)]


def told(data: str, model: Path | str, **options: Any) -> dict[str, Any]:
    output = {"url": str(model), **options.pop("output", {})}
    solver = {"C": 1.0, "gap": 1e-4, **options.pop("solver", {})}
    return {"data": {"url": data, **options}, "problem": {"kind": "binary"}, "solver": solver, "output": output}


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write(tmp_path / "data", MADE).url


def at_once(*work: Callable[[], Any]) -> list[Any]:
    """What each returns or raises, begun at the same moment."""
    ready = threading.Barrier(len(work))

    def one(each: Callable[[], Any]) -> Any:
        ready.wait()
        try:
            return each()
        except InputError as error:
            return error

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(one, work))


def rows(place: Location) -> np.ndarray:
    data = open_dataset(place)
    return np.concatenate([data.read(s).shard.x.values for s in range(data.n_shards)])


@pytest.mark.parametrize("times", TIMES)
def test_two_that_append_at_once_lose_nothing(times: int, location: Location) -> None:
    expected = [MADE.x]
    prepare_arrays(MADE.x, MADE.y, location, "binary", shard_bytes=2000)
    for n in range(times):
        parts = [np.full((30, 6), 2 * n + k, dtype=np.float32) for k in (1, 2)]
        labels = np.arange(30) % 2
        append = lambda x: prepare_arrays(x, labels, location, "binary", append=True)  # noqa: E731, B023
        found = at_once(*(lambda x=x: append(x) for x in parts))  # noqa: B023
        for x, result in zip(parts, found, strict=True):
            if isinstance(result, InputError):
                assert "is writing there" in str(result) or "another process" in str(result)
                append(x)
        first = rows(location)[sum(map(len, expected)) :]
        assert sorted(np.unique(first)) == [2 * n + 1, 2 * n + 2]
        expected.append(first)
        np.testing.assert_array_equal(rows(location), np.concatenate(expected))


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("times", TIMES)
def test_of_two_that_prepare_at_once_one_wins(times: int, overwrite: bool, location: Location) -> None:
    for n in range(times):
        place = location / str(n)
        if overwrite:
            prepare_arrays(MADE.x[:50], MADE.y[:50], place, "binary")
        make = lambda made: prepare_arrays(made.x, made.y, place, "binary", overwrite=overwrite)  # noqa: E731, B023
        found = at_once(lambda: make(MADE), lambda: make(OTHER))  # noqa: B023
        there = rows(place)
        assert any(np.array_equal(there, made.x) for made in (MADE, OTHER))
        assert [name for name in place.names() if name == "claim.json"] == []
        for error in found:
            assert not isinstance(error, InputError) or "writing there" in str(error) or "already holds" in str(error)
        assert not all(isinstance(error, InputError) for error in found)


def test_of_two_runs_to_one_output_the_second_is_refused_before_it_computes(data: str, location: Location) -> None:
    output = {"url": location.url, "storage_options": dict(location.storage_options)}
    second: list[Any] = []

    def begin_another(_: Any) -> None:
        if not second:
            with pytest.raises(InputError) as refused:
                train(told(data, location.url, output=output), watch=lambda _: pytest.fail("it computes"))
            second.append(str(refused.value))

    train(told(data, location.url, output=output), watch=begin_another)
    assert "is writing there; wait until it has ended, or choose another place" in second[0]
    assert load_model(location).certificate["certified"]


def test_a_finished_run_that_resumes_shows_its_certificate(data: str, tmp_path: Path) -> None:
    first = train(told(data, tmp_path / "model"))
    silent = lambda _: pytest.fail("it computes")  # noqa: E731
    again = train(told(data, tmp_path / "model", solver={"gap": 1e-2}), resume=True, watch=silent)
    assert again.finished_before
    assert not first.finished_before
    assert again.certificate["lower"] == first.certificate["lower"]
    with pytest.raises(InputError, match=r"already holds a model, made with another solver\.C; choose another"):
        train(told(data, tmp_path / "model", solver={"C": 2.0}), resume=True)
    with pytest.raises(InputError, match="which did not reach the target of this one"):
        train(told(data, tmp_path / "model", solver={"gap": 1e-12}), resume=True)
    write(tmp_path / "data", OTHER, overwrite=True)
    with pytest.raises(InputError, match="made with another data set"):
        train(told(data, tmp_path / "model"), resume=True)


def test_a_store_that_is_away_at_the_end_costs_no_finished_run(data: str, own_s3: S3Server, tmp_path: Path) -> None:
    url = own_s3.url("run")
    output = {"storage_options": own_s3.storage_options, "retry_seconds": 1.0}

    def away(line: Any) -> None:
        if np.isfinite(line.upper) and line.gap <= 1e-4:
            own_s3.kill()

    with pytest.raises(UnsavedError, match=r"the run is over, but its model is not saved: it is in ") as told_where:
        train(told(data, url, output=output), watch=away)
    folder = str(told_where.value).partition("it is in ")[2].partition(":")[0]
    assert verify(folder).certified
    own_s3.start()
    own_s3.files().put(f"{folder}/", url, recursive=True)  # as the sentence says
    assert verify(Location(url, own_s3.storage_options), Location(data)).certified


def test_a_save_that_fails_keeps_a_checkpoint_and_resumes(data: str, tmp_path: Path, monkeypatch: Any) -> None:
    write_file = Location.write

    def refuses(self: Location, name: str, content: bytes) -> None:
        if name == "weights.npy":
            raise InputError("no room")
        write_file(self, name, content)

    monkeypatch.setattr(Location, "write", refuses)
    with pytest.raises(
        UnsavedError, match=r"no room; the run is over, .*: the checkpoint is in .*: continue with --resume"
    ):
        train(told(data, tmp_path / "model"))
    monkeypatch.undo()
    result = train(told(data, tmp_path / "model"), resume=True)
    assert result.certificate["certified"]
    assert verify(str(tmp_path / "model")).certified


@pytest.mark.parametrize("kept", [True, False])
def test_a_data_set_overwritten_during_a_run_certifies_nothing_else(
    kept: bool, data: str, tmp_path: Path, monkeypatch: Any
) -> None:
    changed: list[int] = []

    def overwrite(_: Any) -> None:
        if not changed:
            changed.append(1)
            write(tmp_path / "data", OTHER, overwrite=True)

    config = told(data, tmp_path / "model", solver={"gap": 1e-9, "max_passes": 5})
    if not kept:
        monkeypatch.setattr(Resources, "keep", lambda *_: False)  # shards are read in every pass
    if not kept:
        with pytest.raises(InputError, match="the data set was replaced after it was opened"):
            train(config, watch=overwrite)
        assert not (tmp_path / "model").exists()
        return
    train(config, watch=overwrite)
    checked = verify(config["output"]["url"])
    assert not checked.certified
    assert "not the data set the model was trained on" in checked.findings[0]


def test_a_store_that_lies_or_cuts_once_is_asked_again_and_twice_is_told_of(s3: S3Server, tmp_path: Path) -> None:
    place = Location(s3.url("lies"), s3.storage_options)
    prepare_arrays(MADE.x, MADE.y, place, "binary", shard_bytes=2000)
    whole = train(told(place.url, tmp_path / "whole", storage_options=s3.storage_options))
    with proxy_of(s3) as proxy:
        options = proxy.storage_options
        proxy.delay = 0.01
        proxy.lie, proxy.cut = 1, 0
        lied = train(told(place.url, tmp_path / "lied", storage_options=options, retry_seconds=1.0))
        assert lied.certificate["upper"] == whole.certificate["upper"]
        for kind in ("lie", "cut"):
            setattr(proxy, kind, 10_000)
            with pytest.raises(InputError, match=r"damaged|is not what was prepared|FlexibleChecksumError"):
                train(told(place.url, tmp_path / kind, storage_options=options, retry_seconds=1.0))
            setattr(proxy, kind, 0)
            assert not (tmp_path / kind).exists()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_sweep_killed_at_any_write_leaves_no_model_or_the_whole_one(data: str, tmp_path: Path) -> None:
    command = (sys.executable, "-m", "tests.saving", data, tmp_path / "model", "sweep")
    ran = run(*command, cwd=Path(__file__).parents[1], timeout=1000)
    assert ran.code == 0, ran.err
    seen = json.loads(ran.out)
    decided = seen.index("new")
    assert decided > 5
    assert seen == ["none"] * decided + ["new"] * (len(seen) - decided)


def test_refused_credentials_name_themselves(s3: S3Server) -> None:
    unknown = {**s3.storage_options, "key": "NOBODY"}
    with pytest.raises(InputError, match="no permission: the storage does not know the access key"):
        Location(s3.url(), unknown).names()
    wrong = {**s3.storage_options, "secret": "WRONG"}
    with pytest.raises(InputError, match="no permission: the secret does not belong to the access key"):
        Location(s3.url(), wrong).read("a")


def test_a_wrong_clock_names_itself(s3: S3Server, monkeypatch: Any) -> None:
    monkeypatch.setattr(botocore.auth, "get_current_datetime", yesterday)
    with pytest.raises(InputError, match="no permission: the storage refuses the clock of this machine"):
        Location(s3.url(), s3.storage_options).read("a")


def yesterday(remove_tzinfo: bool = True) -> datetime.datetime:
    time = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    return time.replace(tzinfo=None) if remove_tzinfo else time


# --- full disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    if os.geteuid() != 0:
        pytest.skip("only the superuser may mount a small file system")
    (tmp_path / "disk").mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path / "disk"], check=False)
    if mounted.returncode:
        pytest.skip("this container may not mount a file system")
    try:
        yield tmp_path / "disk"
    finally:
        subprocess.run(["umount", "-l", tmp_path / "disk"], check=True)


@contextlib.contextmanager
def filled(disk: Path, left: int) -> Iterator[None]:
    """Leave so many bytes of the disk."""
    filler = disk / "filler"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize
    filler.write_bytes(bytes(max(0, free - left)))
    try:
        yield
    finally:
        filler.unlink()


NO_ROOM = "No space left on device"


def test_a_full_disk_under_the_log_or_the_output_is_noticed_before_training(
    data: str, small_disk: Path, tmp_path: Path
) -> None:
    silent = lambda _: pytest.fail("it computes")  # noqa: E731
    with filled(small_disk, 0):
        with pytest.raises(InputError, match=NO_ROOM):
            train(told(data, tmp_path / "model", output={"log": str(small_disk / "log")}), watch=silent)
        with pytest.raises(InputError, match=NO_ROOM):
            train(told(data, small_disk / "model"), watch=silent)
    assert not (small_disk / "model").exists()
    assert not (tmp_path / "model").exists()


def test_a_disk_that_fills_up_leaves_the_old_model_and_a_rerun_works(data: str, small_disk: Path) -> None:
    model = small_disk / "model"
    train(told(data, model))
    old = load_model(Location(str(model)))
    config = told(data, model, solver={"C": 2.0}, output={"overwrite": True})
    with contextlib.ExitStack() as stack:
        fill = lambda line: stack.enter_context(filled(small_disk, 0)) if line.gap <= 1e-4 else None  # noqa: E731
        with pytest.raises(UnsavedError, match=rf"{NO_ROOM}.*its model is not saved"):
            train(config, watch=fill)
        assert load_model(Location(str(model))).C == old.C
        assert verify(str(model)).certified
    assert train(config).certificate["certified"]
    assert verify(str(model)).certified


def test_a_checkpoint_without_room_lets_training_go_on(data: str, small_disk: Path, caplog: Any) -> None:
    with contextlib.ExitStack() as stack:
        fill: list[Any] = [lambda: stack.enter_context(filled(small_disk, 0))]
        config = told(data, small_disk / "model", output={"checkpoint_every": 1e-9})
        with pytest.raises(UnsavedError):
            train(config, watch=lambda _: fill.pop()() if fill else None)
    assert "no checkpoint was written, and training continues" in caplog.text
    assert train({**config, "output": {**config["output"], "overwrite": True}}).certificate["certified"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_prepare_on_a_full_disk_leaves_what_was_there(overwrite: bool, small_disk: Path) -> None:
    place = Location(str(small_disk / "set"))
    if overwrite:
        prepare_arrays(MADE.x[:50], MADE.y[:50], place, "binary")
    many = np.tile(MADE.x, (100, 1))
    with pytest.raises(InputError, match=NO_ROOM):
        prepare_arrays(many, np.tile(MADE.y, 100), place, "binary", overwrite=overwrite, shard_bytes=50_000)
    if overwrite:
        np.testing.assert_array_equal(rows(place), MADE.x[:50])
    else:
        assert place.is_empty()
    prepare_arrays(MADE.x, MADE.y, place, "binary", overwrite=overwrite)
    np.testing.assert_array_equal(rows(place), MADE.x)


def test_a_shuffle_on_a_full_disk_leaves_what_was_there(small_disk: Path, tmp_path: Path, monkeypatch: Any) -> None:
    place = write(tmp_path / "set", OTHER)
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    monkeypatch.setattr("distdual.data.prepare.pipeline.BUDGET_BYTES", 4000)
    refused = pytest.raises(InputError, match=rf"cannot keep a shuffle there \({NO_ROOM}\); set TMPDIR")
    with filled(small_disk, 8192), refused:
        prepare_arrays(np.tile(MADE.x, (20, 1)), np.tile(MADE.y, 20), place, "binary", shuffle=1, overwrite=True)
    np.testing.assert_array_equal(rows(place), OTHER.x)
    assert list(small_disk.iterdir()) == []
    prepare_arrays(MADE.x, MADE.y, place, "binary", shuffle=1, overwrite=True)
    assert len(rows(place)) == len(MADE.x)


@pytest.mark.parametrize("ending", ["txt", "csv", "npy", "parquet", "zarr"])
def test_predictions_on_a_full_disk_leave_no_file(ending: str, data: str, small_disk: Path, tmp_path: Path) -> None:
    train(told(data, tmp_path / "model"))
    out = Location(str(small_disk / f"labels.{ending}"))
    with filled(small_disk, 0), pytest.raises(InputError, match=NO_ROOM):
        predict_to(out, str(tmp_path / "model"), data)
    assert list(small_disk.iterdir()) == []
    predict_to(out, str(tmp_path / "model"), data)


def test_a_log_whose_disk_fills_up_lets_training_go_on(
    data: str, small_disk: Path, tmp_path: Path, caplog: Any
) -> None:
    with contextlib.ExitStack() as stack:
        fill: list[Any] = [lambda: stack.enter_context(filled(small_disk, 0))]
        config = told(data, tmp_path / "model", output={"log": str(small_disk / "log")}, solver={"slack": "all"})
        result = train(config, watch=lambda _: fill.pop()() if fill else None)
    assert f"no more lines are written to this log: {NO_ROOM}" in caplog.text
    assert len((small_disk / "log").read_text().splitlines()) < len(result.history)
    assert verify(str(tmp_path / "model")).findings == ()


def test_a_writer_stopped_for_longer_than_its_lease_changes_nothing(s3: S3Server, monkeypatch: Any) -> None:
    """What SIGSTOP for a minute does, in seconds: no renewal, and another writer meanwhile."""
    place = Location(s3.url("stopped"), s3.storage_options)
    monkeypatch.setattr(claims, "LEASE", 0.0)
    monkeypatch.setattr(claims, "BEAT", 1000.0)
    monkeypatch.setattr(claims, "has_ended", lambda _: True)
    with claimed(place) as stopped:
        prepare_arrays(MADE.x, MADE.y, place, "binary")
        with pytest.raises(Exception, match="another process has taken over"):
            stopped.check()
    np.testing.assert_array_equal(rows(place), MADE.x)
