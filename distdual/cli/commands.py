"""The group of all commands, and the exit codes: 0 done, 1 not certified, 2 bad input."""

import io
import os
import sys
from collections.abc import Sequence

import click

import distdual
from distdual.cli.analysis_commands import completion, report, sweep, warm_up
from distdual.cli.calibrate_command import calibrate
from distdual.cli.example_command import example
from distdual.cli.job_commands import JOB_COMMANDS
from distdual.cli.model_commands import info, predict, run_self_check, verify
from distdual.cli.options import (
    BAD_INPUT,
    EXIT_INTERRUPTED,
    NOT_CERTIFIED,
)
from distdual.cli.prepare_command import prepare
from distdual.cli.train_command import quickstart, train
from distdual.errors import ClusterError, InputError, Superseded, Suspended


class InOrder(click.Group):
    """A group that lists commands in the order of use, not by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)


@click.group(cls=InOrder, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(distdual.__version__, message="distdual %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Linear and structural SVMs on data larger than one machine, with a certificate of optimality.

    Exit codes: 0 done (and certified, where that applies), 1 ran but not certified, 2 bad input.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(BAD_INPUT)


IN_ORDER = (
    *(quickstart, prepare, info, train, sweep, verify, calibrate, predict, report, warm_up),
    *JOB_COMMANDS,
    *(run_self_check, example, completion),
)
for command in IN_ORDER:
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an InputError is printed in one line, without a traceback."""
    # The exception reports a failed task once; Dask's workers would each log it with a traceback.
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot encode "≤" shows "?"
    try:
        code = cli.main(arguments, prog_name="distdual", standalone_mode=False)
    except InputError as error:
        code = print_error(str(error))
    except Superseded as error:
        code = print_error(str(error))
    except (Suspended, ClusterError) as error:
        print_error(str(error))
        code = NOT_CERTIFIED
    except MemoryError as error:
        code = print_error(f"out of memory ({error or 'an allocation failed'}); use more workers, or smaller shards")
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "distdual"
        sentence = error.format_message().rstrip(".")
        code = print_error(f"{sentence}{'' if sentence.endswith('?') else ';'} see `{command} --help`")
    except click.ClickException as error:
        code = print_error(error.format_message())
    except click.Abort:
        click.echo("distdual: interrupted", err=True)
        code = EXIT_INTERRUPTED
    sys.exit(code)


def print_error(sentence: str) -> int:
    """Print an error in one line, even if the message quotes line breaks."""
    click.echo(f"distdual: {' '.join(sentence.split())}", err=True)
    return BAD_INPUT
