"""The command line.

completion: shell completion of files, problems and config keys.
options: options and output that several commands share.
info: the description of a data set, a model or a checkpoint.
analysis_commands: sweep, report, warm-up and completion.
job_commands: submit, status, logs, cancel and list.
commands: all other commands, and `main`.
"""

from distdual.cli.commands import cli, main

__all__ = ["cli", "main"]
