"""The configuration of a run.

checks       checks of single values
kernel       the section of kernels
sections     the keys of each section, with defaults and explanations
typed_table  TOML tables as dataclasses
read_config  files and settings as a Config
"""

from distdual.config.checks import (
    ADDRESS,
    check_address,
    check_choice,
    check_pattern,
    check_seconds,
    check_url,
    index_range,
)
from distdual.config.kernel import KernelConfig, read_kernel
from distdual.config.read_config import apply, from_table, load
from distdual.config.sections import (
    DUALS,
    MODES,
    PRUNES,
    RETRY_SECONDS,
    SCHEDULES,
    SLACKS,
    STREAMS,
    TLS,
    ClusterConfig,
    Config,
    DataConfig,
    EvalConfig,
    LocalCluster,
    OutputConfig,
    PriorConfig,
    ProblemConfig,
    SolverConfig,
)
from distdual.config.typed_table import convert, nearest, parse, read_table, toml_value

__all__ = [
    "ADDRESS",
    "DUALS",
    "MODES",
    "PRUNES",
    "RETRY_SECONDS",
    "SCHEDULES",
    "SLACKS",
    "STREAMS",
    "TLS",
    "ClusterConfig",
    "Config",
    "DataConfig",
    "EvalConfig",
    "KernelConfig",
    "LocalCluster",
    "OutputConfig",
    "PriorConfig",
    "ProblemConfig",
    "SolverConfig",
    "apply",
    "check_address",
    "check_choice",
    "check_pattern",
    "check_seconds",
    "check_url",
    "convert",
    "from_table",
    "index_range",
    "load",
    "nearest",
    "parse",
    "read_kernel",
    "read_table",
    "toml_value",
]
