"""A process that runs commands of the command line, one after the other, for a test that outlives it.

Reads a JSON list of arguments a line, and answers with [exit code, stdout, stderr].
"""

import contextlib
import io
import json
import os
import sys
import traceback
import warnings

from distdual.cli.commands import main


def run(arguments: list[str]) -> tuple[object, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
        except BaseException:  # the verdict is the test's
            code = "traceback"
            traceback.print_exc()
    return code, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", module="zarr")  # where it reads numbers that a type cannot hold
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), file=answers, flush=True)
