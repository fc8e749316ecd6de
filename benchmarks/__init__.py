"""Benchmarks of distdual and its peers, judged by one objective; see `python -m benchmarks --help`."""
