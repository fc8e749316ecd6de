"""How fast and how good is distdual beside others? One objective judges all; see `python -m benchmarks --help`."""
