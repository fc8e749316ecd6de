"""Exceptions: invalid input, a failing cluster, a suspended run, and a run that another process took over."""


class InputError(ValueError):
    """An input is invalid: an argument, a configuration, a file or a data set.

    The message is one sentence that says what was found, where, and what was expected. The command line prints it
    without a traceback and ends with exit code 2.
    """


class Suspended(Exception):
    """Training was terminated and left a checkpoint to resume from; the message says where.

    The command line prints it without a traceback and ends with exit code 1.
    """


class ClusterError(Exception):
    """The cluster has failed: scheduler or workers are lost, or no result arrives within the configured timeouts.

    The message is one sentence. The command line prints it without a traceback and ends with exit code 1.
    """


class Superseded(Exception):
    """Another process has taken over the run because this one was silent for too long; this one must not write."""
