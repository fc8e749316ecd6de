from distdual.cli.commands import cli, main

__all__ = ["cli", "main"]
