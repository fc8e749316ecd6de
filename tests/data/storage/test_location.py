"""Files are read and written alike on every storage, and errors are one sentence without secrets."""

import contextlib
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import botocore.exceptions
import numpy as np
import pytest
import s3fs
from numpy.testing import assert_array_equal

from distdual.config import DataConfig
from distdual.data.dataset import Dataset, open_dataset, open_once
from distdual.data.prepare.writer import DatasetWriter, write_dataset
from distdual.data.shard import Block
from distdual.data.storage import location as location_module
from distdual.data.storage import object_get as fetch
from distdual.data.storage.location import S3_PATIENCE, Location, StorageError, clear_errors, without_secrets
from distdual.errors import InputError
from distdual.kernels.rows import DenseRows
from tests.s3_proxy import proxy_of
from tests.s3_server import BUCKET, S3Server

IMPATIENT = {"config_kwargs": {"connect_timeout": 0.5, "read_timeout": 0.3}}


def block(n: int = 40) -> Block:
    return Block(DenseRows(np.arange(n * 3, dtype=np.float32).reshape(n, 3)), np.arange(n) % 2)


def prepared(place: Location) -> Dataset:
    write_dataset(place, "binary", [block()], shard_bytes=48)
    return open_dataset(place)


def failure(attempt: Callable[[], Any], within: float, *secrets: str) -> InputError:
    """The error of `attempt`: one sentence, in time, with no secret in it or in anything chained to it."""
    begin = time.monotonic()
    with pytest.raises(InputError) as caught:
        attempt()
    assert time.monotonic() - begin < within
    assert "\n" not in str(caught.value)
    for error in chain(caught.value):
        for secret in secrets:
            assert secret not in f"{error} {error!r} {error.args}"
    return caught.value


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


class TestFiles:
    def test_what_is_written_is_read(self, location):
        assert location.is_empty()
        assert not location.exists("a/b.bin")
        location.write("a/b.bin", b"one")
        location.write("a/b.bin", b"two")
        location.write("empty", b"")
        assert location.exists("a/b.bin")
        assert (location.read("a/b.bin"), location.read("empty")) == (b"two", b"")
        assert (location / "a").read("b.bin") == b"two"
        assert not location.is_empty()

    def test_removing_takes_everything_and_may_be_repeated(self, location):
        neighbour = Location(f"{location.url}-neighbour", location.storage_options)
        neighbour.write("kept", b"1")
        for name in ("a", "b/c", "b/d/e"):
            location.write(name, b"1")
        location.remove_file("a")
        location.remove_file("a")
        assert not location.exists("a")
        location.remove()
        location.remove()
        assert location.is_empty()
        assert neighbour.read("kept") == b"1"

    def test_files_are_listed_as_they_are_now(self, location):
        assert location.names() == []
        location.write("b", b"2")
        location.write("a", b"1")
        assert location.names() == ["a", "b"]
        location.remove_file("b")
        assert location.names() == ["a"]

    def test_a_file_that_is_not_there_is_named(self, location):
        assert str(failure(lambda: location.read("x.json"), 5)) == f"{location}/x.json: not found"

    def test_what_another_process_wrote_is_seen_at_once(self, s3):
        place = Location(s3.url(), s3.storage_options)
        s3.files().pipe_file(f"{place.url}/old", b"1")
        place.filesystem()[0].find(place.url)  # s3fs remembers what it has listed
        s3.files().pipe_file(f"{place.url}/new", b"1")
        assert place.exists("new")
        assert not place.is_empty()
        s3.files().rm(f"{place.url}/", recursive=True)
        assert not place.exists("new")
        assert place.is_empty()

    def test_a_slash_at_the_end_makes_no_difference(self, tmp_path):
        assert Location(f"{tmp_path}//") == Location(str(tmp_path))
        assert Location("/").url == "/"
        assert str(Location("s3://bucket/folder/")) == "s3://bucket/folder"

    def test_only_local_paths_are_local(self):
        assert [Location(url).remote for url in ("a/b", "/a", "file:///a", "s3://b/x", "memory://x")] == [
            False, False, False, True, True,
        ]  # fmt: skip

    def test_any_file_system_of_fsspec_will_do(self):
        place = Location("memory://set")
        assert prepared(place).read(3).shard.n_examples == 4
        place.remove()
        assert place.is_empty()

    def test_emptying_a_bucket_leaves_the_bucket(self, s3):
        files = s3.files()
        files.mkdir("whole")
        place = Location("s3://whole", s3.storage_options)
        assert place.is_empty()
        assert prepared(place).n_examples == 40
        place.remove()
        assert place.is_empty()
        assert "whole" in files.ls("")

    def test_a_data_set_may_be_the_whole_of_a_bucket_that_already_failed_once(self, s3):
        s3.files().mkdir("whole2")
        place = Location("s3://whole2", s3.storage_options)
        with contextlib.suppress(ZeroDivisionError), DatasetWriter(place, "binary", shard_bytes=24) as writer:
            writer.append(block())
            raise ZeroDivisionError
        assert prepared(place).n_examples == 40


class TestLocalWrites:
    def test_a_failed_write_leaves_the_old_file_and_no_partial_one(self, tmp_path, monkeypatch):
        place = Location(str(tmp_path))
        place.write("a", b"old")

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match=r"/a: the storage failed \(No space left on device\)"):
            place.write("a", b"new")
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"old")]

    def test_a_file_in_place_of_a_folder_is_told(self, tmp_path):
        (tmp_path / "file").write_text("x")
        for attempt in (
            lambda: Location(str(tmp_path / "file")).write("a", b"1"),
            lambda: Location(str(tmp_path / "file")).read("a"),
            lambda: Location(str(tmp_path)).read("."),
        ):
            assert "a file stands where a folder is expected" in str(failure(attempt, 5))

    def test_a_refused_permission_is_told(self, tmp_path, monkeypatch):
        def refuse(*_: Any, **__: Any) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(os, "makedirs", refuse)
        with pytest.raises(InputError, match="/a: no permission; check the credentials and the access rights"):
            Location(str(tmp_path)).write("a", b"1")


class TestAddresses:
    @pytest.mark.parametrize(
        "url",
        [
            "s3://KEY:s3cr3t@bucket/x",
            "s3://KEY:s3c/r3t@bucket/x",
            "s3://KEY:s3cr3t/bucket",
            "s3a://KEY:s3cr3t@bucket",
            "simplecache::s3://KEY:s3cr3t@bucket/x",
            "https://me:s3cr3t@host/x",
        ],
    )
    def test_an_address_with_credentials_in_it_is_refused_and_not_repeated(self, url):
        for attempt in (lambda: Location(url), lambda: DataConfig(url=url)):
            assert "holds credentials" in str(failure(attempt, 1, "KEY", "s3cr3t", "s3c", "r3t"))

    @pytest.mark.parametrize("url", ["s3://bucket/a@b:c", "/home/a@b/c", "s3://arn:aws:s3:eu-west-1:1:accesspoint/p/x"])
    def test_an_address_that_only_looks_like_it_is_taken(self, url):
        assert Location(url).url == url

    @pytest.mark.parametrize("url", ["", "  "])
    def test_an_empty_address_is_not_the_root_folder(self, url):
        with pytest.raises(InputError, match="must name a folder, got an empty string"):
            Location(url)

    def test_an_unknown_protocol_is_told(self):
        with pytest.raises(InputError, match=r"^gopher://x: cannot be opened: Protocol not known: gopher"):
            Location("gopher://x").read("a")

    @pytest.mark.parametrize(
        "options",
        [
            {"sceret": "hunter22"},
            {"client_kwargs": {"endpoint_url": "hunter22 hunter23"}},
            {"client_kwargs": {"endpont": "hunter22"}},
            {"config_kwargs": {"conect_timeout": "hunter22"}},
            {"profile": "hunter22"},
            {"key": "hunter22", "username": "hunter23"},
        ],
    )
    @pytest.mark.parametrize("attempt", [lambda place: place.read("a"), open_dataset], ids=["read", "open"])
    def test_settings_that_cannot_work_are_told_without_their_values(self, options, attempt):
        place = Location("s3://bucket/x", options)
        message = str(failure(lambda: attempt(place), 10, "hunter22", "hunter23"))
        assert message.startswith("s3://bucket/x: cannot be opened: ")

    def test_secrets_are_blotted_out_however_deep_they_lie(self):
        options = {"key": "AKIA", "deep": {"er": {"token": "tok"}, "n": 3}}
        assert without_secrets("AKIA said tok 3", options) == "*** said *** 3"


class TestPatience:
    def test_s3_gets_short_timeouts_by_default(self):
        assert Location("s3://b/x").options["config_kwargs"] == S3_PATIENCE
        assert Location("/tmp", {"auto_mkdir": True}).options == {"auto_mkdir": True}

    def test_what_the_user_says_wins(self):
        told = {"max_concurrency": 4, "config_kwargs": {"read_timeout": 99, "signature_version": "s3v4"}}
        options = Location("s3://b/x", told).options
        assert options["max_concurrency"] == 4
        assert options["config_kwargs"] == {**S3_PATIENCE, "read_timeout": 99, "signature_version": "s3v4"}
        assert told["config_kwargs"] == {"read_timeout": 99, "signature_version": "s3v4"}

    def test_the_worst_case_is_minutes_not_hours(self):
        retries = S3_PATIENCE["retries"]
        assert isinstance(retries, dict)
        tries = 2 * 2 * retries["total_max_attempts"]  # s3fs repeats the read and each call in it
        assert tries * S3_PATIENCE["read_timeout"] <= 120


class TestWrongHands:
    """A refused access is reported as such, without secrets."""

    def attempts(self, place: Location) -> dict[str, Callable[[], Any]]:
        return {
            "read": lambda: place.read("zarr.json"),
            "write": lambda: place.write("a", b"1"),
            "exists": lambda: place.exists("zarr.json"),
            "is_empty": place.is_empty,
            "open": lambda: open_dataset(place),
            "prepare": lambda: write_dataset(place, "binary", [block()]),
        }

    @pytest.mark.parametrize("what", ["read", "write", "exists", "is_empty", "open", "prepare"])
    @pytest.mark.parametrize("wrong", ["key", "secret"])
    def test_wrong_credentials_are_told(self, s3, what, wrong):
        options = {**s3.storage_options, wrong: "WRONGWRONG"}
        attempt = self.attempts(Location(s3.url(), options))[what]
        message = str(failure(attempt, 10, s3.key, s3.secret, "WRONGWRONG"))
        reason = {
            "key": "the storage does not know the access key",
            "secret": "the secret does not belong to the access key",
        }[wrong]
        assert message.endswith(f"no permission: {reason}; check the credentials")

    @pytest.mark.parametrize("what", ["is_empty", "prepare"])
    def test_a_missing_bucket_is_told(self, s3, what):
        attempt = self.attempts(Location("s3://nowhere/set", s3.storage_options))[what]
        message = str(failure(attempt, 10, s3.key, s3.secret))
        assert message == "s3://nowhere/set: there is no such bucket"

    def test_nothing_can_be_opened_in_a_missing_bucket(self, s3):
        place = Location("s3://nowhere/set", s3.storage_options)
        assert "there is no data set" in str(failure(lambda: open_dataset(place), 10, s3.key, s3.secret))

    @pytest.mark.parametrize("what", ["read", "write", "exists", "is_empty", "open", "prepare"])
    def test_a_bucket_of_somebody_else_is_told(self, s3, what):
        files = s3.files()
        if "private" not in files.ls(""):
            files.mkdir("private")
        attempt = self.attempts(Location("s3://private/set", s3.guest_options))[what]
        message = str(failure(attempt, 10, s3.guest_key, s3.guest_secret))
        assert message.endswith("no permission; check the credentials and the access rights")

    def test_a_guest_may_read_but_neither_write_nor_delete(self, s3):
        place = Location(s3.url(), s3.storage_options)
        prepared(place)
        guest = Location(place.url, s3.guest_options)
        assert open_dataset(guest).read(0).shard.n_examples == 4
        for attempt in (
            lambda: guest.write("a", b"1"),
            guest.remove,
            lambda: guest.remove_file("zarr.json"),
            lambda: write_dataset(guest, "binary", [block()], overwrite=True),
            lambda: write_dataset(Location(s3.url(), s3.guest_options), "binary", [block()]),
        ):
            assert "no permission" in str(failure(attempt, 10, s3.guest_key, s3.guest_secret))
        assert open_dataset(place).read(0).shard.n_examples == 4

    def test_credentials_from_the_environment_work(self, s3, monkeypatch):
        url = s3.url()
        with environment(monkeypatch, s3.endpoint, s3.key, s3.secret):
            assert prepared(Location(url)).read(0).shard.n_examples == 4
        with environment(monkeypatch, s3.endpoint, s3.key, "WRONGWRONG"):
            assert "no permission" in str(failure(lambda: open_dataset(Location(url)), 10, s3.key, "WRONGWRONG"))

    def test_a_profile_works(self, s3, monkeypatch, tmp_path):
        keys = f"aws_access_key_id = {s3.key}\naws_secret_access_key = {s3.secret}\n"
        (tmp_path / "credentials").write_text(f"[mine]\n{keys}")
        options = {"profile": "mine", "client_kwargs": s3.storage_options["client_kwargs"]}
        with environment(monkeypatch, s3.endpoint, None, None):
            monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
            assert prepared(Location(s3.url(), options)).read(0).shard.n_examples == 4

    @pytest.mark.parametrize(
        ("options", "plain"),
        [
            ({}, True),
            ({"max_concurrency": 3, "requester_pays": True, "use_ssl": False}, True),
            ({"s3_additional_kwargs": {"ACL": "private"}}, False),
            ({"version_aware": False}, False),
        ],
    )
    def test_settings_that_are_not_known_to_mean_the_same_are_left_to_s3fs(self, s3, options, plain, monkeypatch):
        place = Location(s3.url(), {**s3.storage_options, **options})
        data = prepared(place)
        direct, real = [], fetch.from_s3
        monkeypatch.setattr(fetch, "from_s3", lambda *given: (direct.append(given), real(*given))[1])
        assert_array_equal(data.read(1).shard.x.values, block().x.values[4:8])
        assert bool(direct) == plain

    def test_no_credentials_at_all_are_told(self, s3, monkeypatch):
        with environment(monkeypatch, s3.endpoint, None, None):
            message = str(failure(lambda: open_dataset(Location(s3.url())), 20))
        assert message.endswith("no credentials; give key and secret in storage_options or in the environment")

    def test_no_text_and_no_file_shows_a_secret(self, s3, tmp_path):
        place = Location(s3.url(), s3.storage_options)
        data = prepared(place)
        shown = [repr(place), str(place), repr(data), repr(data.chunks), repr(place / "a")]
        shown += [repr(DataConfig(url=place.url, storage_options=s3.storage_options))]
        shown += [repr(Location(place.url, s3.storage_options)), repr([place]), f"{place}", f"{place!r}"]
        files = s3.files()
        stored = [files.cat_file(name) for name in files.find(place.url)]
        assert len(stored) > 10
        for secret in (s3.key, s3.secret):
            assert all(secret not in text for text in shown)
            assert all(secret.encode() not in content for content in stored)


@contextlib.contextmanager
def environment(monkeypatch: Any, endpoint: str, key: str | None, secret: str | None) -> Iterator[None]:
    """The AWS settings of a shell; fsspec must not remember a connection made under others."""
    given = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
    files = {"AWS_SHARED_CREDENTIALS_FILE": os.devnull, "AWS_CONFIG_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "1"}
    kept = dict(s3fs.S3FileSystem._cache)
    with monkeypatch.context() as shell:
        for name, value in {**given, **files}.items():
            shell.setenv(name, value) if value else shell.delenv(name, raising=False)
        yield
    for token in set(s3fs.S3FileSystem._cache) - set(kept):
        KEPT.append(s3fs.S3FileSystem._cache.pop(token))


KEPT: list[Any] = []  # connections that must not be collected in a thread with another loop; see s3_server.files


class TestServerGone:
    """A server that dies or hangs costs seconds, then one sentence; when it is back, everything goes on."""

    def test_reading_fails_fast_and_goes_on_when_the_server_is_back(self, own_s3):
        place = Location(own_s3.url(), own_s3.storage_options)
        data = prepared(place)
        data.read(0)
        own_s3.kill()
        secrets = own_s3.key, own_s3.secret
        for attempt in (lambda: data.read(1), lambda: open_dataset(place), lambda: place.read("zarr.json")):
            error = failure(attempt, 15, *secrets)
            assert isinstance(error, StorageError)
            assert "is the server up" in str(error)
        assert f"{place}/x/c/1/0" in str(failure(lambda: data.read(1), 15))
        own_s3.start()
        assert data.read(1).shard.n_examples == 4
        assert open_once(place, data.fingerprint, data.n_shards).read(2).shard.n_examples == 4

    @pytest.mark.slow
    def test_who_is_patient_waits_for_a_server_that_is_started_again(self, own_s3):
        place = Location(own_s3.url(), own_s3.storage_options, retry_seconds=120)
        data = prepared(place)
        own_s3.kill()
        again = threading.Timer(3.0, own_s3.start)
        again.start()
        begin = time.monotonic()
        read = data.read(1)
        again.join()
        assert time.monotonic() - begin > 2.5
        assert read.n_gets > len(data.layout.arrays)  # each attempt is one
        assert_array_equal(read.shard.x.values, block().x.values[4:8])
        assert place.exists("zarr.json")

    @pytest.mark.parametrize(
        "what", ["a shard", *(pytest.param(w, marks=pytest.mark.slow) for w in ("a file", "a data set in a worker"))]
    )
    def test_a_server_that_asks_to_slow_down_is_asked_again(self, s3, what):
        with proxy_of(s3) as proxy:
            place = Location(s3.url(), proxy.storage_options, retry_seconds=60)
            data = prepared(place)
            attempt = {
                "a shard": lambda: data.read(1),
                "a file": lambda: place.read("zarr.json"),
                "a data set in a worker": lambda: open_once(place, data.fingerprint, data.n_shards),
            }[what]
            proxy.refuse = 20
            attempt()
            assert proxy.refuse == 0
            hasty = open_dataset(place.patient(1.0))
            proxy.refuse = 10**6
            assert isinstance(failure(lambda: hasty.read(1), 20, s3.key, s3.secret), StorageError)

    def test_pauses_between_tries_grow_and_end(self, monkeypatch):
        now, pauses = [0.0], []
        monkeypatch.setattr(location_module.time, "monotonic", lambda: now[0])
        monkeypatch.setattr(location_module.time, "sleep", lambda t: (pauses.append(t), now.__setitem__(0, now[0] + t)))

        def fails() -> None:
            raise OSError(5, "x")

        with pytest.raises(StorageError):
            Location("s3://b/x", {}, 60.0).patiently("a", fails)
        assert 45 < sum(pauses) <= 60
        assert max(pauses) <= 1.5 * location_module.LONGEST_PAUSE
        assert pauses[0] < 0.2 < pauses[-1]
        assert 10 < len(pauses) < 40

    def test_a_disk_that_fails_is_told_at_once(self, tmp_path):
        (tmp_path / "file").write_text("")
        failure(lambda: Location(str(tmp_path / "file"), {}, 60.0).write("a", b""), 1)

    def test_writing_fails_fast_and_can_be_run_again(self, own_s3):
        place = Location(own_s3.url(), own_s3.storage_options)

        def blocks() -> Iterator[Block]:
            yield block()
            own_s3.kill()
            yield block()

        attempt = lambda: write_dataset(place, "binary", blocks(), shard_bytes=48)  # noqa: E731
        error = failure(attempt, 30, own_s3.key, own_s3.secret)
        assert isinstance(error, StorageError)
        own_s3.start()
        with pytest.raises(InputError, match="incomplete"):
            open_dataset(place)
        assert prepared(place).n_examples == 40

    def test_a_server_that_hangs_is_given_up(self, own_s3):
        options = {**own_s3.storage_options, **IMPATIENT}
        place = Location(own_s3.url(), options)
        data = prepared(place)
        assert own_s3.process is not None
        os.killpg(own_s3.process.pid, signal.SIGSTOP)
        try:
            error = failure(lambda: data.read(1), 25, own_s3.key, own_s3.secret)
        finally:
            os.killpg(own_s3.process.pid, signal.SIGCONT)
        assert isinstance(error, StorageError)
        assert data.read(1).shard.n_examples == 4

    def test_a_server_that_never_was_is_told(self):
        options = {"key": "AKEY", "secret": "ASECRET", "client_kwargs": {"endpoint_url": "http://127.0.0.1:9"}}
        place = Location("s3://bucket/x", options)
        for attempt in (lambda: open_dataset(place), lambda: write_dataset(place, "binary", [block()])):
            assert isinstance(failure(attempt, 10, "AKEY", "ASECRET"), StorageError)


class TestClearErrors:
    @pytest.mark.parametrize(
        ("error", "kind", "text"),
        [
            (FileNotFoundError(2, "secret"), InputError, "a: not found"),
            (PermissionError("secret"), InputError, "a: no permission; check the credentials and the access rights"),
            (
                TimeoutError(),
                StorageError,
                "a: the storage failed (TimeoutError); is the server up, and is there room?",
            ),
            (OSError(5, "secret"), StorageError, "(Input/output error)"),
            (botocore.exceptions.EndpointConnectionError(endpoint_url="secret"), StorageError, "EndpointConnection"),
        ],
    )
    def test_each_failure_has_its_sentence(self, error, kind, text):
        def attempt() -> None:
            with clear_errors("a"):
                raise error

        caught = failure(attempt, 1)
        assert type(caught) is kind
        assert text in str(caught)
        assert "secret" not in str(caught)

    @pytest.mark.parametrize("error", [ZeroDivisionError("x"), InputError("x"), StorageError("x"), KeyError("x")])
    def test_what_is_no_matter_of_storage_passes_as_it_is(self, error):
        with pytest.raises(type(error)) as caught, clear_errors("a"):
            raise error
        assert caught.value is error

    def test_a_storage_error_can_be_sent_to_another_process(self):
        assert str(pickle.loads(pickle.dumps(StorageError("a: the storage failed")))) == "a: the storage failed"


class TestTheServerItself:
    def test_two_servers_run_side_by_side_and_share_nothing(self, s3, own_s3):
        assert s3.endpoint != own_s3.endpoint
        s3.files().pipe_file(f"{BUCKET}/mine", b"1")
        assert not own_s3.files().exists(f"{BUCKET}/mine")

    def test_closing_leaves_neither_process_nor_folder(self):
        server = S3Server().start()
        assert server.process is not None
        process, folder = server.process, server.folder
        server.close()
        server.close()
        assert process.poll() is not None
        assert not Path(folder).exists()


def test_a_folder_in_which_the_first_write_was_killed_is_empty(tmp_path):
    (tmp_path / "dual").mkdir()
    (tmp_path / "run.json.partial").write_bytes(b"{")
    assert Location(str(tmp_path)).is_empty()
    (tmp_path / "dual" / "alpha.npy").write_bytes(b"")
    assert not Location(str(tmp_path)).is_empty()


def test_a_file_is_no_empty_folder(tmp_path):
    (tmp_path / "notes.partial").write_text("mine")
    assert not Location(str(tmp_path / "notes.partial")).is_empty()
