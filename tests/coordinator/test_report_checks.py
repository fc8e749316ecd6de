"""A report is used only if it answers the scan and reaches no further than examples and weights."""

import numpy as np
import pytest

from distdual.coordinator.report_checks import check_report
from distdual.errors import InputError
from distdual.kernels.rows import CsrRows
from distdual.problems.binary import Binary
from distdual.scan.scan import Scan, scan_shard
from distdual.scan.shard_reader import Loaded
from tests.build import CLASSES, examples, shard_of

N, D = 20, 4
FIRST = np.array([0, 50, 50 + N])
SCAN = Scan(1, 3, np.empty(0, dtype=np.uint64), 2, 15)


def report(*, sparse: bool = False):
    shard = shard_of(examples(0, N, D), sparse=sparse, number=1, first=50)
    return scan_shard(Binary(n_features=D, classes=CLASSES), Loaded(shard, 0, 0.0), np.zeros(D), SCAN)


def changed(column, at, value):
    found = report()
    array = getattr(found.offenders, column).copy()
    array[at] = value
    return found._replace(offenders=found.offenders._replace(**{column: array}))


@pytest.mark.parametrize("sparse", [False, True])
def test_an_honest_report_passes(sparse):
    found = report(sparse=sparse)
    assert len(found.offenders.margin) == 13
    check_report(found, SCAN, FIRST, D)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: report()._replace(shard=0), "it is of shard 0"),
        (lambda: report()._replace(version=2), "at weights 2, not 3"),
        (lambda: report()._replace(n_examples=14), "it is of shard 1"),
        (lambda: report()._replace(loss=np.nan), "the loss is nan"),
        (lambda: report()._replace(loss=-1.0), "the loss is -1"),
        (lambda: changed("example", 0, 51), "example − 52: -1 is not from 0 to 12"),
        (lambda: changed("example", 0, 65), "example − 52: 13 is not"),
        (lambda: changed("cost", 0, -1.0), "cost: -1.0 is below 0"),
        (lambda: changed("margin", 0, np.inf), "margin: a number is NaN or infinite"),
    ],
)
def test_a_report_of_something_else_is_refused(made, words):
    with pytest.raises(InputError, match=words):
        check_report(made(), SCAN, FIRST, D)


def test_constraints_are_checked_only_where_they_were_sent():
    wrong = changed("example", 0, 51)
    check_report(wrong, SCAN, FIRST, D, sent=False)
    with pytest.raises(InputError, match="at weights 2, not 3"):
        check_report(wrong._replace(version=2), SCAN, FIRST, D, sent=False)


@pytest.mark.parametrize(("column", "value"), [(0, D), (0, -1), (1, D + 7)])
def test_rows_that_reach_beyond_the_weights_are_refused(column, value):
    found = report(sparse=True)
    rows = found.offenders.rows
    indices = rows.indices.copy()
    indices[column] = value
    found = found._replace(offenders=found.offenders._replace(rows=CsrRows(rows.indptr, indices, rows.values)))
    with pytest.raises(InputError, match="indices"):
        check_report(found, SCAN, FIRST, D)


def test_rows_of_another_width_are_refused():
    with pytest.raises(InputError, match="values: expected float32 or float64 of shape 13×5"):
        check_report(report(), SCAN, FIRST, D + 1)
