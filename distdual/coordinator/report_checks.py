"""Checks of a worker's report before the coordinator uses it."""

import numpy as np

from distdual.coordinator.row_arrays import check_rows, pack_rows
from distdual.errors import InputError
from distdual.kernels.rows import Ints, ReferredRows, Rows
from distdual.problems.base import BiasKinks, Constraints
from distdual.scan.scan import Scan, ShardReport
from distdual.schema import array, below, rising


def check_report(report: ShardReport, scan: Scan, first: Ints, n_weights: int, *, sent: bool = True) -> None:
    """Refuse a report that does not answer the scan, or whose constraints reach beyond examples or weights.

    `first` has the number of the first example of each shard. Constraints that were not `sent`, but built in this
    process by a problem of ours from data that are checked, need no check.
    """
    where = f"the report of shard {scan.shard} from {report.worker or 'this process'}"
    end = int(first[scan.shard + 1] - first[scan.shard]) if scan.end is None else scan.end
    if (report.shard, report.version) != (scan.shard, scan.version) or report.n_examples > end - scan.begin:
        raise InputError(f"{where}: it is of shard {report.shard} at weights {report.version}, not {scan.version}")
    if not (0 <= report.loss < np.inf and 0 <= report.new_loss < np.inf):
        raise InputError(f"{where}: the loss is {report.loss}")
    if report.kinks is not None:
        check_kinks(f"{where}: kinks", report.kinks)
    if not sent:
        return
    begin = int(first[scan.shard]) + scan.begin
    check_constraints(where, report.offenders, begin, begin + end - scan.begin, n_weights)


def check_kinks(where: str, found: BiasKinks) -> None:
    n = len(array(f"{where}: at", found.at, np.float64, (None,)))
    array(f"{where}: weight", found.weight, np.float64, (n,), low=0)
    if not (abs(found.slope) <= found.total < np.inf and found.low <= 0 <= found.high):
        raise InputError(f"{where}: slope {found.slope} of {found.total}, from {found.low} to {found.high}")


def check_constraints(where: str, found: Constraints, begin: int, end: int, n_weights: int) -> None:
    n = len(array(f"{where}: example", found.example, np.int64, (None,)))
    below(f"{where}: example − {begin}", found.example - begin, end - begin)
    array(f"{where}: cost", found.cost, np.float64, (n,), low=0)
    array(f"{where}: margin", found.margin, np.float64, (n,))
    array(f"{where}: keys", found.keys.values, np.int32, (None,))
    rising(f"{where}: keys", array(f"{where}: keys", found.keys.indptr, np.int64, (n + 1,)), len(found.keys.values))
    if not isinstance(found.rows, ReferredRows) and not isinstance(getattr(found.rows, "x", None), ReferredRows):
        check_own_rows(where, found.rows, n, n_weights)


def check_own_rows(where: str, rows: Rows, n: int, n_weights: int) -> None:
    """Check rows that were sent by a worker; rows that refer to a shard of this process need no check."""
    try:
        check_rows(pack_rows(rows.trimmed()), n, n_weights)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
