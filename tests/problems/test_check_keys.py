"""Keys that come from storage name constraints of their examples, or they are refused."""

import numpy as np
import pytest

from distdual.errors import InputError
from distdual.problems.base import Keys, Problem
from distdual.problems.binary import Binary
from distdual.problems.chain.problem import Chain
from distdual.problems.multiclass import Multiclass
from distdual.problems.multivariate.problem import Multivariate
from distdual.problems.registry import BUILT_IN
from distdual.problems.regression import Regression
from tests.build import CLASSES, examples, shard_of

ROWS = shard_of(examples(0, 6, 3))
SEQUENCES = ROWS.__class__(0, 0, ROWS.x, ROWS.y, tokens=np.array([0, 2, 6]))


def keys(*each):
    indptr = np.concatenate([[0], np.cumsum([len(key) for key in each])]).astype(np.int64)
    return Keys(indptr, np.array([part for key in each for part in key], dtype=np.int32))


BINARY = Binary(n_features=3, classes=CLASSES)
REGRESSION = Regression(n_features=3)
MULTICLASS = Multiclass(n_features=3, classes=("a", "b", "c"))
CHAIN = Chain(n_features=3, classes=("a", "b", "c"))


@pytest.mark.parametrize("cls", BUILT_IN)
def test_every_built_in_problem_checks_keys(cls):
    """Those of constraints of the whole data set hold weights, which `weights_of` checks."""
    assert cls.check_keys is not Problem.check_keys or cls is Multivariate


@pytest.mark.parametrize(
    ("problem", "shard", "good"),
    [
        (BINARY, ROWS, keys((), ())),
        (REGRESSION, ROWS, keys((0,), (1,))),
        (MULTICLASS, ROWS, keys((0,), (2,))),
        (CHAIN, SEQUENCES, keys((0, 2), (1, 1, 0, 2))),
    ],
)
def test_what_names_constraints_is_rebuilt(problem, shard, good):
    found = problem.rebuilt(shard, np.array([0, 1]), good)
    np.testing.assert_array_equal(found.margin, problem.constraints(shard, np.array([0, 1]), good).margin)


@pytest.mark.parametrize(
    ("problem", "shard", "bad", "words"),
    [
        (BINARY, ROWS, keys((0,), ()), "1 numbers, expected 0"),
        (REGRESSION, ROWS, keys((0,), ()), "0 numbers, expected 1"),
        (REGRESSION, ROWS, keys((0,)), "1 keys of 2 stored constraints"),
        (REGRESSION, ROWS, keys((0,), (2,)), "2 is not from 0 to 1"),
        (MULTICLASS, ROWS, keys((0,), (3,)), "3 is not from 0 to 2"),
        (MULTICLASS, ROWS, keys((-1,), (1,)), "-1 is not from 0 to 2"),
        (MULTICLASS, ROWS, keys((0, 1), ()), "2 numbers, expected 1"),
        (CHAIN, SEQUENCES, keys((0,), (1, 1, 0, 2)), "is not one tag per token"),
        (CHAIN, SEQUENCES, keys((0, 3), (1, 1, 0, 2)), "names a tag beyond"),
    ],
)
def test_what_names_none_is_refused(problem, shard, bad, words):
    with pytest.raises(InputError, match=words):
        problem.rebuilt(shard, np.array([0, 1]), bad)


@pytest.mark.parametrize("chosen", [[-1, 0], [0, 6], [0, 2**40]])
def test_an_example_beyond_the_shard_is_refused(chosen):
    with pytest.raises(InputError, match="an example of a stored constraint"):
        BINARY.rebuilt(ROWS, np.array(chosen), keys((), ()))
