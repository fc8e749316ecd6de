"""pyarrow, which reads tables; an optional dependency, imported on first use."""

import importlib
from typing import Any

from distdual.errors import InputError


def arrow(module: str = "pyarrow") -> Any:
    """pyarrow or one of its modules."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError("tables are read with pyarrow, which is missing: pip install pyarrow") from None
