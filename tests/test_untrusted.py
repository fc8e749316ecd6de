"""What a model or a data set from elsewhere names is never fetched, run, shown as code, or waited for."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdual
from distdual import memory
from distdual.certificate.verify import verify
from distdual.coordinator import slack_partition
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import NAMED_BY_MODELS, Location, check_scheme
from distdual.errors import InputError, Suspended
from distdual.kernels.rounding import largest_value
from distdual.report.page import RunView, page
from distdual.report.write_report import write_report
from distdual.scan.shard_reader import load_shard
from tests.build import examples
from tests.fuzz.mutations import repair_checkpoint
from tests.report.sample import asynchronous
from tests.shell import assert_refused, call

SCRIPT = "<script>alert(1)</script>"


def config(folder: Path, **solver: Any) -> dict[str, Any]:
    return {
        "data": {"url": str(folder / "data")},
        "problem": {"kind": "binary"},
        "solver": {"gap": 0.01, **solver},
        "output": {"url": str(folder / "model"), "overwrite": True},
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("untrusted")
    made = examples(0, 60, 4)
    prepare_arrays(made.x, np.where(made.y, SCRIPT, "no"), str(folder / "data"), "binary", shard_bytes=400)
    distdual.train(config(folder))
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return tmp_path


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


# --- names


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "dual/../x.npy", "s3://bucket/x.npy", "pipe"])
def test_a_digest_of_anything_but_a_file_of_the_model_is_refused(name, here):
    change(here / "model" / "certificate.json", sha256={name: "0" * 64})
    with pytest.raises(InputError, match="the plain name of a file of the model"):
        verify(str(here / "model"))


@pytest.mark.parametrize("name", ["dual/members-../../x", "dual/members-a/b", "../members-1", "/dual/members-1", 7])
def test_members_are_a_folder_of_the_model(name, here):
    change(here / "model" / "model.json", dual="groups", members=name)
    with pytest.raises(InputError, match=r"model\.json: members: expected a folder in dual/"):
        verify(str(here / "model"))


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/x", "ssh://host/x", "simplecache::s3://b/x", "github://o:r@/x"]
)
def test_data_that_only_the_model_names_is_not_fetched_from_anywhere(url, here, capsys):
    about = json.loads((here / "model" / "model.json").read_text())
    change(here / "model" / "model.json", data={**about["data"], "url": url})
    assert_refused(call(capsys, "verify", here / "model"), "model.json names", "name the data set yourself with --data")
    assert call(capsys, "verify", here / "model", "--data", here / "data").code == 0


def test_folders_and_object_stores_are_fetched_from():
    for scheme in NAMED_BY_MODELS:
        check_scheme("a model", f"{scheme}://bucket/data")
    check_scheme("a model", "/a/folder")
    check_scheme("a model", "a/folder")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ["model/weights.npy", "model/model.json", "data/zarr.json", "data/lengths/c/0/0"])
def test_a_pipe_in_place_of_a_file_is_refused_at_once(name, here):
    (here / name).unlink()
    os.mkfifo(here / name)
    with pytest.raises(InputError, match="neither a file nor a folder, but p"):
        verify(str(here / "model"), str(here / "data"))


@pytest.mark.timeout(30)
def test_a_pipe_in_place_of_a_chunk_is_refused_at_once(here):
    chunk = here / "data" / "x" / "c" / "0" / "0"
    chunk.unlink()
    os.mkfifo(chunk)
    with pytest.raises(InputError, match="neither a file nor a folder, but p"):
        open_dataset(Location(str(here / "data"))).read(0)


@pytest.mark.parametrize(
    "name", ["model/model.json", "model/certificate.json", "model/replacement.json", "data/zarr.json"]
)
def test_json_that_is_nested_too_deeply_is_one_sentence(name, here, capsys):
    (here / name).write_text("[" * 200_000)
    assert_refused(call(capsys, "verify", here / "model", "--data", here / "data"))
    command = ("predict", here / "model", here / "data", "--out", here / "labels.txt")
    assert_refused(call(capsys, *command))


@pytest.mark.timeout(30)
def test_a_pipe_in_place_of_a_source_is_refused_at_once(tmp_path, capsys):
    (tmp_path / "source").mkdir()
    os.mkfifo(tmp_path / "source" / "zarr.json")
    made = call(capsys, "prepare", tmp_path / "source", tmp_path / "data", "--problem", "binary")
    assert_refused(made, "neither a file nor a folder")


# --- memory


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "memory_limit", lambda: 2000)
    monkeypatch.setattr(slack_partition, "memory_limit", lambda: 2000)


def test_the_limit_is_that_of_this_machine():
    assert 2**20 < memory.memory_limit() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_cache_that_fills_the_memory_ends_the_run_with_a_sentence(here, small, monkeypatch):
    monkeypatch.setattr(memory, "LARGEST_SHARE", 1e9)  # of what files claim
    with pytest.raises(InputError, match=r"the cached constraints take [\d,]+ bytes.* set solver\.cache_bytes"):
        distdual.train(config(here))


def test_what_does_not_fit_is_refused_before_it_is_allocated(here, small):
    with pytest.raises(InputError, match=r"takes .* GiB of memory; this machine has"):
        open_dataset(Location(str(here / "data")))


def test_running_out_of_memory_is_one_sentence(here, monkeypatch, capsys):
    def fail(_: object) -> None:
        raise MemoryError("Unable to allocate 9 TiB")

    monkeypatch.setattr("distdual.cli.info.open_dataset", fail)
    assert_refused(call(capsys, "info", here / "data"), "out of memory", "9 TiB")


# --- a checkpoint


def test_a_resumed_run_certifies_nothing_that_the_data_do_not_give(here):
    told = config(here, gap=1e-9)
    told["output"]["url"] = str(here / "half")
    with pytest.raises(Suspended):
        distdual.train(told, terminated=lambda: True)
    folder = here / "half" / "checkpoint"
    (file,) = folder.glob("*-constraints.npz")
    arrays = dict(np.load(file))
    arrays["margin"] = 3.0 * arrays["margin"]
    np.savez(file, **arrays)
    repair_checkpoint(folder)
    with pytest.raises(InputError, match="does not belong to the data"):
        distdual.train({**told, "solver": {"gap": 1e-2}}, resume=True)
    assert not (here / "half" / "model.json").exists()


# --- pages


def test_a_script_in_any_name_is_text_on_every_page(here, tmp_path):
    lines = asynchronous()
    for line in lines:
        line["events"] = [f"lost {SCRIPT}"]
        line["workers"] = {f"tcp://{SCRIPT}": [100, 0.5]}
    certificate = json.loads((here / "model" / "certificate.json").read_text())
    certificate |= {"certified": False, "reason": SCRIPT, "slack": SCRIPT, "model": SCRIPT}
    for run in (
        RunView(lines, SCRIPT, certificate, dask=f"http://x/{SCRIPT}"),
        RunView(lines, SCRIPT, running=True, failure=SCRIPT),
        RunView(lines, SCRIPT, failure=SCRIPT),
    ):
        assert "alert(1)" in (made := page(run))
        assert SCRIPT not in made


def test_a_script_as_label_and_path_is_text_in_a_report(trained, tmp_path, capsys):
    folder = tmp_path / SCRIPT.replace("/", "")
    shutil.copytree(trained, folder)
    (folder / "run.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in flat(config(folder))))
    ran = call(capsys, "train", folder / "run.toml", "--set", f"output.log={folder / 'log.jsonl'}")
    assert ran.code == 0, ran.err
    report, *_ = write_report(str(folder / "log.jsonl"), tmp_path / "report.html", png=False)
    assert "<script>alert" not in report.read_text(encoding="utf-8")


def flat(told: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(f"{section}.{key}", value) for section, keys in told.items() for key, value in keys.items()]


def test_shards_that_stay_in_memory_are_checked_once(here, monkeypatch):
    counted = []
    monkeypatch.setattr("distdual.data.dataset.check_shard_arrays", lambda where, *_: counted.append(where) or 0.0)
    dataset = open_dataset(Location(str(here / "data")))
    result = distdual.train(config(here))
    assert result.certificate["passes"] > 1
    assert len(counted) == dataset.n_shards
    assert load_shard(dataset, 0).shard.number == 0
    assert len(counted) == dataset.n_shards + 1


def test_features_are_searched_when_a_shard_is_read_first_or_is_not_what_was_prepared(here, monkeypatch):
    dataset, searched = open_dataset(Location(str(here / "data"))), []

    def search(values: Any) -> float:
        searched.append(values)
        return largest_value(values)

    monkeypatch.setattr("distdual.data.shard_checks.largest_value", search)
    norms = [dataset.read(0).shard.norm for _ in range(3)]
    assert len(searched) == 1
    assert norms[0] == norms[1] == norms[2]
    dataset.checksum[0] += 1
    for _ in range(2):
        assert not dataset.read(0, check=False).intact
    assert len(searched) == 3
