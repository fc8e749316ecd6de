"""The one error that is the user's to mend."""


class InputError(ValueError):
    """Something handed to distdual is wrong.

    The message is one sentence that says what was found, where, and what was expected. The command line prints it
    without a traceback and ends with exit code 2.
    """
