"""The command line.

completion: shell completion of files, problems and config keys.
options: options and output that several commands share.
data_options: options about tables and arrays.
show: certificates, verifications and tables as text.
info: the description of a data set, a model or a checkpoint.
dry_run: what a run would read, hold and cost, as text.
prepare_command: prepare.
train_command: quickstart and train.
model_commands: info, verify, predict and check-problem.
calibrate_command: calibrate.
analysis_commands: sweep, report, warm-up and completion.
example_command: example.
job_commands: submit, status, logs, cancel and list.
commands: the group of all commands, `main`, and exit codes.
"""

from distdual.cli.commands import cli, main

__all__ = ["cli", "main"]
