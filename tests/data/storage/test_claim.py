"""One process at a time writes to a folder, and a dead one stands in nobody's way."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from distdual.data.storage import claim as claims
from distdual.data.storage.claim import TakenError, claimed
from distdual.data.storage.conditional import ChangedError, version_of, write_if
from distdual.data.storage.location import CLAIM, Location
from distdual.errors import InputError, Superseded
from tests.shell import environment

HOLD = """
import json, sys, time
from distdual.data.storage.claim import claimed
from distdual.data.storage.location import Location
told = json.loads(sys.argv[1])
with claimed(Location(told["url"], told["options"])):
    print("held", flush=True)
    time.sleep(60)
"""


def held_elsewhere(location: Location) -> subprocess.Popen:
    told = json.dumps({"url": location.url, "options": dict(location.storage_options)})
    process = subprocess.Popen([sys.executable, "-c", HOLD, told], stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout.readline() == "held\n"
    return process


def test_a_file_is_created_once_and_replaced_by_who_knows_it(location):
    first = write_if(location, "a", b"1", None)
    assert version_of(location, "a") == first
    with pytest.raises(ChangedError, match="another process"):
        write_if(location, "a", b"2", None)
    second = write_if(location, "a", b"2", first)
    with pytest.raises(ChangedError, match="another process"):
        write_if(location, "a", b"3", first)
    assert location.read("a") == b"2"
    assert version_of(location, "a") == second
    with pytest.raises(ChangedError):
        write_if(location, "b", b"1", first)
    assert version_of(location, "b") is None
    assert location.names() == ["a"]


def test_a_write_whose_answer_was_lost_counts_as_done(location):
    write_if(location, "a", b"1", None)
    assert write_if(location, "a", b"1", None) == version_of(location, "a")


def test_a_second_claim_is_refused_and_says_who_holds_the_first(location):
    with claimed(location) as first:
        with pytest.raises(TakenError, match=rf"{location}: process {os.getpid()} on .* is writing there; wait"):
            claimed(location).__enter__()
        first.check()
        assert location.is_empty()
    with claimed(location):
        pass
    assert not location.exists(CLAIM)


def test_a_folder_made_for_a_claim_is_removed_with_it(tmp_path):
    with claimed(Location(str(tmp_path / "a" / "b"))):
        assert (tmp_path / "a" / "b").is_dir()
    assert not (tmp_path / "a").exists()


def test_the_claim_of_a_killed_process_is_void_at_once(location):
    process = held_elsewhere(location)
    try:
        with pytest.raises(TakenError, match=f"process {process.pid} on"):
            claimed(location).__enter__()
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    with claimed(location) as mine:
        mine.check()


def test_the_claim_of_another_machine_is_void_after_a_while(s3, monkeypatch):
    location = Location(s3.url(), s3.storage_options)
    monkeypatch.setattr(claims, "LEASE", 3.0)
    location.write(CLAIM, json.dumps({"pid": 7, "host": "far", "machine": "far", "started": "1"}).encode())
    with pytest.raises(TakenError, match=r"process 7 on far is writing there; .*; if it was killed, its claim ends in"):
        claimed(location).__enter__()
    time.sleep(4.5)  # the storage tells whole seconds
    with claimed(location):
        assert json.loads(location.read(CLAIM))["pid"] == os.getpid()


def test_a_lease_is_renewed_while_it_is_held(s3, monkeypatch):
    location = Location(s3.url(), s3.storage_options)
    monkeypatch.setattr(claims, "BEAT", 0.2)
    with claimed(location) as mine:
        before = version_of(location, CLAIM)
        time.sleep(1.0)
        assert version_of(location, CLAIM) != before
        mine.check()


def test_who_was_silent_for_too_long_must_not_write(s3, monkeypatch):
    location = Location(s3.url(), s3.storage_options)
    monkeypatch.setattr(claims, "LEASE", 0.0)
    monkeypatch.setattr(claims, "machine", lambda: "here")
    with claimed(location) as first:
        time.sleep(1.5)
        with claimed(location) as second:
            with pytest.raises(Superseded, match="another process has taken over"):
                first.check()
            second.check()


def test_a_later_attempt_at_a_job_takes_the_claim_over(location):
    with claimed(location, "job-1") as first:
        with pytest.raises(TakenError):
            claimed(location, "job-2").__enter__()
        with claimed(location, "job-1") as second:
            second.check()
            if location.remote:
                first._renew()  # as its thread will do
            with pytest.raises(Superseded, match="another process has taken over"):
                first.check()
        assert not location.exists(CLAIM)


def test_a_folder_that_cannot_be_written_is_told_of(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("the superuser may write everywhere")
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="no permission"):
        claimed(Location(str(tmp_path / "set"))).__enter__()
