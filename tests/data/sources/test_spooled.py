"""A table of text is parsed once, however often it is read."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from distdual.data.prepare.api import prepare
from distdual.data.sources import tables
from distdual.data.sources.spooled import kept_in_file, spooled
from distdual.data.sources.tables import Table
from distdual.errors import InputError

TYPES = {"size": "number", "part": "text"}


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    return tmp_path / "scratch"


def table(reads: list[str]) -> Table:
    def batches(wanted: Mapping[str, str]) -> Iterator[Any]:
        reads.append(",".join(wanted))
        for k in range(3):
            texts = pa.array([f"level {k}", None, "b"]).dictionary_encode()  # another dictionary in each batch
            yield pa.record_batch({"size": pa.array([1.0, None, float(k)]), "part": texts})

    return Table("rows", TYPES, batches, text=True)


def test_later_passes_read_what_the_first_one_kept(scratch: Path) -> None:
    reads: list[str] = []
    kept = spooled(table(reads), TYPES)
    known = [batch.to_pydict() for batch in table([]).read(TYPES)]
    assert [batch.to_pydict() for batch in kept.read({"size": "number"})] == known
    for _ in range(2):
        assert [batch.to_pydict() for batch in kept.read(TYPES)] == known
    assert reads == ["size,part"]
    assert not list(scratch.iterdir())


def test_a_first_pass_that_stops_keeps_nothing(scratch: Path) -> None:
    reads: list[str] = []
    kept = spooled(table(reads), TYPES)
    some = kept.read(TYPES)
    next(some)
    some.close()  # type: ignore[attr-defined]
    assert not list(scratch.iterdir())
    assert len(list(kept.read(TYPES))) == 3
    assert len(reads) == 2


def test_a_full_disk_is_one_sentence() -> None:
    with pytest.raises(InputError, match=r"parsed rows cannot be kept there .*set TMPDIR"):
        list(kept_in_file(table([]).read(TYPES), "/dev/full"))


def test_prepare_parses_csv_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.csv").write_text("size,part,y\n" + "1.5,a,0\n2.5,b,1\n" * 20)
    opened: list[Any] = []
    real = tables.open_csv
    monkeypatch.setattr(tables, "open_csv", lambda *told: opened.append(told[2]) or real(*told))
    (made,) = prepare(tmp_path / "rows.csv", tmp_path / "data", "binary", label="y", scale="unit-variance")
    assert (made.n_examples, made.n_features) == (40, 3)
    assert [sorted(wanted) for wanted in opened] == [[], ["part", "size", "y"]]  # the types, then all columns
