"""The one error that is the user's to mend, one that is the cluster's, and one that is none."""


class InputError(ValueError):
    """Something handed to distdual is wrong.

    The message is one sentence that says what was found, where, and what was expected. The command line prints it
    without a traceback and ends with exit code 2.
    """


class Suspended(Exception):
    """Training was told to end at once and left a checkpoint to go on from; the message says where.

    The command line prints it without a traceback and ends with exit code 1.
    """


class ClusterError(Exception):
    """The cluster no longer does what it is asked: nobody is there, or nothing comes back within the limits set.

    The message is one sentence. The command line prints it without a traceback and ends with exit code 1.
    """


class Superseded(Exception):
    """Another process has taken a run over, because this one was silent for too long: it must write nothing more."""
