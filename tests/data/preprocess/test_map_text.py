"""A map survives being a text, and a text that is no map is refused."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from distdual.config import KernelConfig
from distdual.data.preprocess.draw_map import MapDraw
from distdual.data.preprocess.map_text import StoredMap, map_from, map_text
from distdual.errors import InputError
from distdual.kernels.rows import CsrRows, DenseRows, Features

X = np.random.default_rng(3).normal(size=(60, 4)).astype(np.float32)
DENSE: Features = DenseRows(X)
MATRIX = sp.csr_array(X * (X > 0))
SPARSE: Features = CsrRows(MATRIX.indptr.astype(np.int64), MATRIX.indices.astype(np.int32), MATRIX.data)
KINDS = {
    "dense": (DENSE, {"kind": "rbf"}),
    "sparse": (SPARSE, {"kind": "polynomial", "degree": 2, "coef0": 1.0}),
    "fourier": (DENSE, {"kind": "laplacian", "map": "fourier"}),
    "k-means++": (DENSE, {"kind": "rbf", "landmarks": "k-means++"}),
}


def drawn(x: Features, **kernel: object) -> StoredMap:
    draw = MapDraw(KernelConfig(basis=8, **kernel), seed=1)  # type: ignore[arg-type]
    for begin in range(0, 60, 25):
        draw.add(x.piece(begin, min(begin + 25, 60)))
    return draw.made(4, "rows")


@pytest.mark.parametrize("name", KINDS)
def test_a_map_read_back_maps_to_the_same_bits(name):
    x, kernel = KINDS[name]
    made = drawn(x, **kernel)
    again = map_from(map_text(made))
    assert again.quality == made.quality
    assert again.feature_map.digest == made.feature_map.digest
    assert_array_equal(again.feature_map.rows(x, 2).values, made.feature_map.rows(x).values)


def test_what_is_drawn_does_not_depend_on_how_rows_are_cut():
    draw = MapDraw(KernelConfig(kind="rbf", basis=8), seed=1)
    draw.add(DENSE)
    assert draw.made(4, "rows").feature_map.digest == drawn(DENSE, kind="rbf").feature_map.digest


def test_gamma_scale_is_that_of_all_rows_zeros_included():
    told = drawn(SPARSE, kind="rbf").feature_map.function.gamma
    assert told == pytest.approx(1.0 / (4 * MATRIX.toarray().astype(float).var()))


TAMPERED = {
    "no JSON": lambda told: told.clear(),
    "unknown key": lambda told: told.update(more=1),
    "gamma": lambda told: told.update(gamma=-1.0),
    "is missing": lambda told: told["arrays"].pop("factor"),
    "is damaged": lambda told: told["arrays"]["factor"].update(base64="abc"),
    "lower triangular": lambda told: told["arrays"]["factor"].update(
        told["arrays"]["factor"], **flipped(told["arrays"]["factor"])
    ),
    "expected": lambda told: told.update(n_inputs=5),
}


def flipped(factor: dict[str, object]) -> dict[str, object]:
    """The array with its entries in the opposite order: upper triangular."""
    import base64

    values = np.frombuffer(base64.b64decode(str(factor["base64"])))[::-1]
    return {"base64": base64.b64encode(values.tobytes()).decode()}


@pytest.mark.parametrize("message", TAMPERED)
def test_a_text_that_is_no_map_is_refused(message):
    told = json.loads(map_text(drawn(DENSE, kind="rbf")))
    TAMPERED[message](told)
    content = "{" if message == "no JSON" else json.dumps(told)
    with pytest.raises(InputError, match=message):
        map_from(content)
