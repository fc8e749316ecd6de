"""distdual trusts only schedulers with the right certificate, and code that the user has named."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdual
from distdual.cluster.dask_client import security_of
from distdual.config import ClusterConfig, load
from distdual.errors import InputError, Suspended
from tests.build import examples, write
from tests.certificates import Pem, certificates
from tests.processes import dask_cluster
from tests.shell import assert_refused, call, environment, run

ROOT = Path(__file__).parents[1]
TOLD = "data.url = {data!r}\nproblem.kind = 'binary'\noutput = {{ url = {model!r}, overwrite = true }}\n"
NAMES = ("tls_ca", "tls_cert", "tls_key")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("data") / "set", examples(0, 300, 6), n_shards=3).url


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_LOGGING__DISTRIBUTED", "critical")  # put back what the command line sets


# --- TLS


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Pem:
    return certificates(tmp_path_factory.mktemp("ours") / "pem")


@pytest.fixture(scope="module")
def address(pem: Pem, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler and a worker that require a certificate of our authority."""
    with dask_cluster(tmp_path_factory.mktemp("cluster"), workers=1, tls=pem.for_dask()) as found:
        yield found


def config_of(folder: Path, data: str, cluster: str = "") -> Path:
    file = folder / "run.toml"
    file.write_text(TOLD.format(data=data, model=str(folder / "model")) + cluster)
    return file


def test_the_right_certificate_trains_verifies_and_submits(
    address: str, pem: Pem, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = "".join(f"cluster.{name} = {file!r}\n" for name, file in zip(NAMES, pem, strict=True))
    in_config = config_of(tmp_path, data, cluster + "cluster.timeout = 60\n")
    assert call(capsys, "train", in_config, "--scheduler", address).code == 0
    verified = call(capsys, "verify", tmp_path / "model", "--scheduler", address, *pem.for_us())
    assert verified.code == 0, verified
    ran = run("python", "jobs/verify.py", address, tmp_path / "model", *pem.for_us(), cwd=ROOT, env=environment())
    assert ran.code == 0, ran
    options = ("--scheduler", address, *pem.for_us())
    submitted = call(capsys, "submit", config_of(tmp_path, data), *options)
    assert submitted.code == 0, submitted
    assert call(capsys, "logs", submitted.out.strip(), "--follow", *options).code == 0


@pytest.mark.parametrize("whose", ["nobody's", "another authority's", "not asked for"])
def test_without_the_right_certificate_nothing_is_sent(
    whose: str, address: str, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config_of(tmp_path, data, "cluster.timeout = 2\n")
    options, words = ("--scheduler", address), [address, "tls_ca"]
    if whose == "another authority's":
        options, words = (*options, *certificates(tmp_path / "theirs").for_us()), [address, "the same authority"]
    if whose == "not asked for":
        plain = address.replace("tls", "tcp")
        options, words = ("--scheduler", plain), [plain, "did not answer within 2 s"]
    assert_refused(call(capsys, "train", file, *options), *words)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tls_ca": "ca.pem"}, "cluster.tls_cert and cluster.tls_key not given"),
        (dict.fromkeys(NAMES, "x.pem") | {"scheduler": "tcp://host:1"}, "need a scheduler at tls://host:port, got tcp"),
        (dict.fromkeys(NAMES, "x.pem"), "need a scheduler at tls://host:port, got no address"),
        ({"scheduler": "http://host:1"}, "cluster.scheduler http://host:1: not an address"),
        ({"scheduler": "tcp://host:1/path"}, "not an address; expected one such as tcp://10.0.0.1:8786"),
        ({"scheduler": ""}, "cluster.scheduler : not an address"),
    ],
)
def test_tls_settings_are_checked(options: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        ClusterConfig(**options)  # type: ignore[arg-type]


def test_certificate_files_are_checked(pem: Pem, tmp_path: Path) -> None:
    def of(*files: str) -> ClusterConfig:
        return ClusterConfig(scheduler="tls://host:1", **dict(zip(NAMES, files, strict=True)))  # type: ignore[arg-type]

    with pytest.raises(InputError, match=r"cluster\.tls_key: file .*nowhere not found"):
        security_of(of(pem.ca, pem.cert, str(tmp_path / "nowhere")))
    (tmp_path / "text").write_text("no key")
    with pytest.raises(InputError, match="expected PEM files, and the key of the certificate"):
        security_of(of(pem.ca, pem.cert, str(tmp_path / "text")))
    with pytest.raises(InputError, match="expected PEM files, and the key of the certificate"):
        security_of(of(pem.ca, pem.cert, certificates(tmp_path / "theirs").key))


def test_the_command_line_overrides_the_config(tmp_path: Path) -> None:
    file = config_of(tmp_path, "data", "cluster.local.workers = 3\n")
    assert load(file).cluster.local is not None
    found = load(file, (), {"scheduler": "tls://host:1", "tls_ca": "a", "tls_cert": "b", "tls_key": "c"}).cluster
    assert (found.local, found.scheduler, found.tls_key) == (None, "tls://host:1", "c")


# --- stored files never run code


class Trap:
    """An object that creates a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def traps(folder: Path) -> Any:
    array = np.empty(1, dtype=object)
    array[0] = Trap(folder)
    return array


def set_trap(path: Path, sprung: Path) -> None:
    """Replace all arrays of a file by pickles."""
    if path.suffix == ".npy":
        np.save(path, traps(sprung), allow_pickle=True)
    else:
        names = np.load(path, allow_pickle=False).files
        np.savez(path, **{name: traps(sprung) for name in names})


def arrays_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in (".npy", ".npz"))


def test_the_trap_works_when_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "trap.npy", traps(tmp_path / "sprung"), allow_pickle=True)
    np.load(tmp_path / "trap.npy", allow_pickle=True)
    assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize("slack", ["example", "block:8"])
def test_a_model_with_a_pickle_is_refused_and_runs_nothing(slack: str, data: str, tmp_path: Path) -> None:
    model, sprung = tmp_path / "model", tmp_path / "sprung"
    config = {"data": {"url": data}, "problem": {"kind": "binary"}, "output": {"url": str(model)}}
    distdual.train({**config, "solver": {"slack": slack, "max_passes": 2}})
    assert distdual.verify(str(model)).findings == ()
    one_of_each = {path.parent.name if "members" in path.parent.name else path: path for path in arrays_of(model)}
    assert any("members" in str(name) for name in one_of_each) == (slack != "example")
    for path in one_of_each.values():
        whole = path.read_bytes()
        set_trap(path, sprung)
        with pytest.raises(InputError):
            distdual.verify(str(model))
        path.write_bytes(whole)
    assert not sprung.exists()
    assert distdual.verify(str(model)).findings == ()


def test_a_checkpoint_full_of_pickles_is_refused_and_runs_nothing(data: str, tmp_path: Path) -> None:
    model, sprung = tmp_path / "model", tmp_path / "sprung"
    config = {"data": {"url": data}, "problem": {"kind": "binary"}, "output": {"url": str(model)}}
    with pytest.raises(Suspended):
        distdual.train(config, terminated=lambda: True)
    for path in arrays_of(model / "checkpoint"):
        set_trap(path, sprung)
    manifest = model / "checkpoint" / "manifest.json"
    said = json.loads(manifest.read_text())
    for name in said["files"]:  # an attacker can write digests, too
        said["files"][name] = hashlib.sha256((model / "checkpoint" / name).read_bytes()).hexdigest()
    manifest.write_text(json.dumps(said))
    with pytest.raises(InputError, match="not a checkpoint that this version can read"):
        distdual.train(config, resume=True)
    assert not sprung.exists()


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_a_source_of_pickles_is_refused_and_runs_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sprung, array = tmp_path / "sprung", traps(tmp_path / "sprung")
    with (tmp_path / name).open("wb") as file:
        np.savez(file, x=array, y=array) if name.endswith("z") else np.save(file, array, allow_pickle=True)
    labels = ("--labels", tmp_path / name) if name.endswith("y") else ()
    assert_refused(call(capsys, "prepare", tmp_path / name, tmp_path / "data", "--problem", "binary", *labels), name)
    assert not sprung.exists()


def test_code_that_only_a_model_names_is_not_imported(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trapped.py").write_text("import os\nos.mkdir('sprung')\n")
    config = {"data": {"url": data}, "problem": {"kind": "binary"}, "output": {"url": "model"}}
    distdual.train(config)
    about = json.loads(Path("model/model.json").read_text())
    about["problem"]["kind"] = "trapped:Problem"
    Path("model/model.json").write_text(json.dumps(about))
    for command in (["verify", "model"], ["predict", "model", data, "--out", "labels.txt"]):
        assert_refused(call(capsys, *command), "--problem trapped:Problem")
    for section in ({"solver": {"start": "model"}}, {"prior": {"mean": "model"}}):
        with pytest.raises(InputError, match="trapped:Problem"):
            distdual.train({**config, **section, "output": {"url": "other"}})
    call(capsys, "info", "model")
    assert "trapped" not in sys.modules
    assert not Path("sprung").exists()
