"""The cases that ended in a crash, a traceback or a false certificate when they were first tried."""

FAILED: list[tuple[str, str, int]] = []
