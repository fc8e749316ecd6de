"""Verification recomputes both bounds from the folder and the data, and names whatever was changed since training."""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import zarr

from distdual import train, verify
from distdual.certificate.check_shard import shorter
from distdual.certificate.verify import Verification
from distdual.config import ClusterConfig, LocalCluster
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location
from distdual.errors import InputError
from tests.build import Examples, examples, write

D = 4
MADE = examples(0, 80, D, cost=True)
PRIORS = {
    "no prior": {},
    "a precision": {"precision": 3.0},
    "no negative weights": {"nonnegative": ["0:3"]},
}


class Place(NamedTuple):
    model: Path
    data: Path


def make(folder: Path, made: Examples = MADE, *, sparse: bool = False, **sections: Any) -> Place:
    place = Place(folder / "model", folder / "data")
    write(place.data, made, sparse=sparse)
    train(
        {
            "data": {"url": str(place.data)},
            "problem": {"kind": "binary", "bias": 1.0},
            "output": {"url": str(place.model)},
            **sections,
        }
    )
    return place


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Place:
    return make(tmp_path_factory.mktemp("verify"))


@pytest.fixture
def place(trained, tmp_path) -> Place:
    """A copy of a data set and its model, to be tampered with."""
    found = Place(tmp_path / "model", tmp_path / "data")
    shutil.copytree(trained.model, found.model)
    shutil.copytree(trained.data, found.data)
    return found


def check(place: Place, **options: Any) -> Verification:
    return verify(str(place.model), str(place.data), **options)


def certificate(place: Place) -> dict[str, Any]:
    return json.loads((place.model / "certificate.json").read_text())


def change_array(place: Place, name: str, change: Any) -> None:
    path = place.model / name
    np.save(path, change(np.load(path)))


def change_certificate(place: Place, **changes: Any) -> None:
    (place.model / "certificate.json").write_text(json.dumps({**certificate(place), **changes}))


def change_data(place: Place, name: str, at: Any, value: Any) -> None:
    """Through Zarr, so that the storage's own checksum is right."""
    array = zarr.open_group(str(place.data), mode="r+")[name]
    array[at] = value


def denied(found: Verification, *words: str) -> None:
    assert not found.certified
    for word in words:
        assert any(word in finding for finding in found.findings), found.findings


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("prior", PRIORS)
def test_both_bounds_come_out_as_training_found_them_with(prior, sparse, tmp_path):
    place = make(tmp_path, sparse=sparse, prior=PRIORS[prior])
    found, said = check(place), certificate(place)
    assert found.findings == ()
    assert found.certified
    assert (found.lower, found.upper, found.gap) == pytest.approx((said["lower"], said["upper"], said["gap"]), rel=1e-9)
    assert (found.target, found.support, found.oracle_calls) == (said["target"], said["support"], 80)
    assert found.bytes_read > 0
    arrays = 4 if sparse else 2
    assert (found.gets, found.n_shards, found.appended) == ((arrays + 1) * found.n_shards, found.n_shards, 0)


@pytest.mark.parametrize("schedule", ["gap", "slope", "batch", "mine"])
def test_both_bounds_come_out_after_every_schedule(schedule, tmp_path):
    place = make(tmp_path, solver={"schedule": schedule, "prune": "aggressive"})
    assert check(place).certified


def test_the_data_set_is_found_by_the_url_in_the_model(trained):
    assert verify(str(trained.model)).certified
    assert verify(Location(str(trained.model))).certified


def test_a_model_that_did_not_reach_its_target_is_recomputed_but_not_certified(tmp_path):
    place = make(tmp_path, solver={"gap": 1e-12, "max_passes": 1})
    found = check(place)
    assert found.findings == ()
    assert not found.certified
    assert found.gap == pytest.approx(certificate(place)["gap"], rel=1e-6)


def test_the_model_of_an_optimum_of_zero_is_certified(tmp_path):
    place = make(tmp_path, examples(0, 20, D)._replace(margin=np.full(20, -1.0)))
    found = check(place)
    assert (found.certified, found.lower, found.upper, found.gap, found.support) == (True, 0.0, 0.0, 0.0, 0)


def test_threads_and_a_cluster_agree_to_the_last_bit(trained):
    cluster = ClusterConfig(local=LocalCluster(workers=2, memory="1GiB"))
    assert check(trained, cluster=cluster) == check(trained)


def bump(array: Any) -> Any:
    array = array.copy()
    array[len(array) // 2] *= 1.001
    return array


@pytest.mark.parametrize(
    ("name", "bound"), [("weights.npy", "upper is"), ("dual/alpha.npy", "lower is")], ids=["a weight", "an alpha"]
)
def test_one_number_changed_is_found_and_named(name, bound, place):
    change_array(place, name, bump)
    denied(check(place), f"{name} is not what training wrote", bound)


@pytest.mark.parametrize("name", ["weights.npy", "dual/alpha.npy"])
@pytest.mark.parametrize("value", [np.nan, np.inf], ids=["not a number", "infinite"])
def test_a_number_that_is_none_is_refused(value, name, place):
    def spoil(array):
        array = array.copy()
        array[0] = value
        return array

    change_array(place, name, spoil)
    change_certificate(place, sha256={})
    with pytest.raises(InputError, match=f"{name}: a number is NaN or infinite"):
        check(place)


@pytest.mark.parametrize(
    ("name", "at"),
    [("x", (3, 1)), ("x", (75, 0)), ("y", 5), ("cost", 40)],
    ids=["a feature of the first shard", "a feature of the last shard", "a label", "a cost"],
)
def test_one_entry_of_the_data_changed_is_found_and_its_shard_named(name, at, place):
    array = zarr.open_group(str(place.data), mode="r")[name]
    change_data(place, name, at, 1 - array[at] if name == "y" else array[at] + 0.5)
    row = at[0] if isinstance(at, tuple) else at
    denied(check(place), f"shard {row // 20} is not what was prepared: its checksum differs")


def test_data_prepared_again_with_one_row_changed_is_found_and_its_shard_named(place):
    x = MADE.x.copy()
    x[45, 2] += 0.25
    shutil.rmtree(place.data)
    write(place.data, MADE._replace(x=x))
    denied(check(place), "not the data set the model was trained on: shards 2 differ")


def test_data_cut_into_other_shards_is_not_the_data_set_it_was_trained_on(place):
    shutil.rmtree(place.data)
    write(place.data, MADE, n_shards=2)
    found = check(place)
    denied(found, "2 shards, the model was trained on 4")
    assert found.upper == pytest.approx(certificate(place)["upper"], rel=1e-9)


def test_a_dual_that_names_examples_beyond_the_data_is_found(place):
    def beyond(example):
        example = example.copy()
        example[-1], example[0] = 80, -1
        return example

    change_array(place, "dual/example.npy", beyond)
    with pytest.raises(InputError, match="dual/example"):
        check(place)


def test_an_alpha_above_its_capacity_proves_nothing(place):
    """Not even if the digests and the recorded bound were made to fit."""
    change_array(place, "dual/alpha.npy", lambda alpha: np.where(np.arange(len(alpha)) == 3, 100.0, alpha))
    change_certificate(place, sha256={})
    found = check(place)
    example = np.load(place.model / "dual" / "example.npy")[3]
    denied(found, f"α is not feasible for 1 examples, the first is example {example}")
    assert found.lower == 0.0


@pytest.mark.parametrize("wrong", [-1e-9, np.nan, np.inf])
def test_an_alpha_below_0_or_without_end_is_refused_when_it_is_read(wrong, place):
    change_array(place, "dual/alpha.npy", lambda alpha: np.where(np.arange(len(alpha)) == 3, wrong, alpha))
    with pytest.raises(InputError, match=r"dual/alpha\.npy: (-1e-09 is below 0|a number is NaN or infinite)"):
        check(place)


@pytest.mark.parametrize(("part", "certified"), [(0.5, True), (1.0, False)], ids=["half of it", "all of it"])
def test_alpha_under_each_of_two_names_shares_one_slack_if_it_is(part, certified, place):
    change_array(place, "dual/alpha.npy", lambda alpha: np.repeat(part * alpha, 2))
    change_array(place, "dual/example.npy", lambda example: np.repeat(example, 2))
    change_array(place, "dual/key_indptr.npy", lambda indptr: np.zeros(2 * len(indptr) - 1, dtype=np.int64))
    change_certificate(place, sha256={})
    assert check(place).certified == certified


@pytest.mark.parametrize("name", ["lower", "upper"])
@pytest.mark.parametrize("value", [1.0, None], ids=["a lie", "null"])
def test_a_certificate_that_claims_something_else_is_denied(name, value, place):
    change_certificate(place, **{name: value})
    denied(check(place), f"{name} is")


@pytest.mark.parametrize("name", ["lower", "upper"])
@pytest.mark.parametrize("value", ["much", float("nan")], ids=["a word", "not a number"])
def test_a_bound_that_is_no_number_is_refused(name, value, place):
    change_certificate(place, **{name: value})
    with pytest.raises(InputError, match=rf"certificate\.json: {name}: expected a finite number, found"):
        check(place)


def test_a_certificate_without_its_bounds_is_refused(place):
    (place.model / "certificate.json").write_text("{}")
    with pytest.raises(InputError, match=r"certificate\.json: lower is missing"):
        check(place)


@pytest.mark.parametrize("value", [None, "much", [1]], ids=["null", "a word", "a list"])
def test_a_target_that_makes_no_sense_is_refused(value, place):
    change_certificate(place, target=value)
    with pytest.raises(InputError, match=r"certificate\.json: target: expected a finite number, found"):
        check(place)


@pytest.mark.parametrize("value", [None, "much", [1]], ids=["null", "a word", "a list"])
def test_digests_that_make_no_sense_are_an_error(value, place):
    change_certificate(place, sha256=value)
    with pytest.raises(InputError, match=r"certificate\.json: sha256: expected a table, found"):
        check(place)


def test_multipliers_nobody_asked_for_are_found(place):
    np.save(place.model / "dual" / "beta.npy", np.ones(3))
    with pytest.raises(InputError, match=r"dual/beta\.npy: 3 numbers, expected none or one per weight"):
        check(place)
    np.save(place.model / "dual" / "beta.npy", np.ones(len(np.load(place.model / "weights.npy"))))
    denied(check(place), "β is not feasible")


def test_weights_of_another_sign_than_asked_for_are_found(tmp_path):
    place = make(tmp_path, prior={"nonnegative": ["0:3"]})
    change_array(place, "weights.npy", lambda w: np.append(-np.abs(w[:1]) - 0.1, w[1:]))
    denied(check(place), "a weight is negative that must not be")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (examples(0, 80, D + 1), "n_features is 5, but the model was trained with 4"),
        (examples(0, 80, D), None),
    ],
    ids=["more features", "other examples"],
)
def test_another_data_set_is_no_data_set_for_this_model(made, message, place):
    shutil.rmtree(place.data)
    write(place.data, made)
    if message:
        with pytest.raises(InputError, match=message):
            check(place)
    else:
        denied(check(place), "not the data set the model was trained on")


def append(place: Place, made: Examples = MADE) -> None:
    prepare_arrays(made.x, np.where(made.y == 1, 1, -1), place.data, "binary", cost=made.cost, append=True)


def test_shards_appended_since_are_left_out(place):
    before = check(place)
    append(place)
    found = check(place)
    assert found.certified
    assert (found.lower, found.upper, found.n_shards) == (before.lower, before.upper, before.n_shards)
    assert found.appended == before.n_shards
    assert found.gets == before.gets


def test_shards_appended_to_other_data_prove_nothing(place):
    change_data(place, "y", 0, 1 - zarr.open_group(str(place.data))["y"][0])
    append(place)
    denied(check(place), "shard 0 is not what was prepared")


def test_a_vector_comes_back_in_the_shorter_form():
    dense, few = np.arange(6.0), np.array([0, 0, 0, 2.0, 0, 0])
    assert shorter(dense).at is None
    found = shorter(few)
    assert found.at is not None
    assert (found.at.tolist(), found.values.tolist()) == ([3], [2.0])


def test_a_data_set_that_is_not_there_is_an_error(place):
    with pytest.raises(InputError, match="there is no data set"):
        verify(str(place.model), str(place.data / "nowhere"))


def test_a_chunk_that_is_missing_is_an_error(place):
    (place.data / "x" / "c" / "1" / "0").unlink()
    with pytest.raises(InputError, match="shard 1, array 'x': the chunk is missing"):
        check(place)


def test_of_a_model_whose_data_set_has_moved_it_says_how_to_name_it(tmp_path):
    place = make(tmp_path)
    moved = place.data.rename(tmp_path / "moved")
    with pytest.raises(InputError, match="if the data set has moved since the training, name it: --data URL"):
        verify(str(place.model))
    assert verify(str(place.model), str(moved)).certified
