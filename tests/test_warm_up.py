"""Compilation ahead of the first run."""

import pytest

from distdual.data.dataset import open_dataset
from distdual.data.storage.location import Location
from distdual.kernels.compile_cache import on_compile
from distdual.problems.registry import KINDS, class_of
from distdual.warm_up import data_sets, warm_up
from tests.shell import assert_refused, call


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_tiny_data_sets_in_each_form(tmp_path, kind):
    found = data_sets(kind, class_of(kind).data_spec, tmp_path / "data")
    forms = [type(open_dataset(Location(str(folder))).read(0).shard.x) for folder in found]
    assert len(set(forms)) == len(forms)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_command_trains_what_it_is_told_to(capsys):
    ran = call(capsys, "warm-up", "binary")
    assert (ran.code, ran.out.split()) == (0, ["warm", "binary"])


def test_an_unknown_kind_is_refused_before_any_work(capsys):
    assert_refused(call(capsys, "warm-up", "binary", "trinary"), "trinary")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_later_runs_compile_nothing():
    warm_up(["regression"])
    told: list[bool] = []
    with on_compile(told.append):
        warm_up(["regression"])
    assert told == []
