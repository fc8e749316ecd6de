"""The side of `benchmarks.compare` that runs in one tree: reads requests, lines of JSON, and answers each with another.

Uses only what trees of several ages have in common. {"case": NAME, "C": C} loads a case; {"gap": GAP} solves it,
with further settings of the solver as "options".
With `--without NAME`, a mechanism of `benchmarks.ablation_switches` is off.
"""

import gc
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any


def main(tree: str, folder: str, *without: str) -> None:
    if without:
        from benchmarks.ablation_switches import SWITCHES

        SWITCHES[without[1]].off()
    import distdual
    from benchmarks import machine
    from benchmarks.datasets import CASES
    from benchmarks.solvers import ours

    assert Path(distdual.__file__).is_relative_to(tree), f"{distdual.__file__} is not of {tree}"
    machine.IN_ADVANCE = 2**30  # two trees share the machine
    machine.keep_memory()
    case: Any = None
    with tempfile.TemporaryDirectory(prefix="distdual-compare-") as scratch:
        for line in sys.stdin:
            asked = json.loads(line)
            if "case" in asked:
                case = None
                case = replace(CASES[asked["case"]](Path(folder), Path(scratch)), C=asked["C"])
                answer = {"title": case.title}
            else:
                gc.collect()
                answer = figures(ours.solve(case, asked["gap"], **asked.get("options", {})))
            print(json.dumps(answer), flush=True)


def figures(run: Any) -> dict[str, Any]:
    outcome = run.outcome
    return {
        "seconds": run.seconds,
        "passes": outcome.totals.passes,
        "updates": outcome.solver.updates,
        "gap": float(outcome.certificate.gap),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
