"""The sections of a configuration and their keys: one frozen dataclass per section."""

import dataclasses
import math
import re
from dataclasses import dataclass, field
from typing import Any

from distdual.config.checks import check_address, check_choice, check_pattern, check_seconds, check_url, index_range
from distdual.config.kernel import KernelConfig
from distdual.errors import InputError

RETRY_SECONDS = 60.0
TLS = ("tls_ca", "tls_cert", "tls_key")  # keys of [cluster]
SELECTIONS = ("all", "margin:N")
SCHEDULES = ("slope", "gap", "one-pass", "ratio:R", "reprocess:K", "mine", "batch")
MODES = ("deterministic", "async")
SLACKS = ("auto", "example", "block:N", "shard", "all")
STREAMS = ("auto", "yes", "no")
PRUNES = ("aggressive", "idle:N", "never")
DUALS = ("full", "summary")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    url: str
    """Path or URL of the data set: a local folder or an fsspec URL such as s3://bucket/folder."""

    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    """fsspec options for data.url, such as credentials. Never written to a model, a log or an error message."""

    retry_seconds: float = RETRY_SECONDS
    """Seconds to keep retrying a failed shard read from remote storage before the run ends."""

    def __post_init__(self) -> None:
        check_url("data.url", self.url)
        check_seconds("data.retry_seconds", self.retry_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemConfig:
    kind: str
    """Learning problem: a built-in one, such as "binary", or your own as "package.module:Class"."""

    options: dict[str, Any] = field(default_factory=dict)
    """The problem's own keys of [problem], checked by the problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverConfig:
    C: float = 1.0
    """Weight of the summed loss against 1/2 ||w||²."""

    gap: float = 1e-3
    """Stop once (upper − lower) / upper is proven to be at most this."""

    max_passes: int = 200
    """Stop after this many passes over the data set, certified or not. An asynchronous run may add half as many, which
    keep workers busy while the coordinator prepares a certificate."""

    max_seconds: float = math.inf
    """Stop after this many seconds, certified or not."""

    schedule: str = "slope"
    """When to scan and when to ascend: "slope", "gap", "one-pass", "ratio:R", "reprocess:K", "mine" or "batch"."""

    stream: str = "auto"
    """Whether a pass reads the data set from storage ("yes") or finds it in memory ("no"). The schedule "slope" spends
    more ascent on each pass that reads. "auto": yes on remote storage and above 2 GiB, unless the mode is "async"."""

    process: bool = True
    """With schedule "reprocess:K": a step on each new constraint before the K visits to random ones."""

    average: bool = False
    """With schedule "reprocess:K": scan with and certify w̄, the average of w over the last K visits."""

    select: str = "all"
    """Which examples of a pass that does not certify bring constraints: "all", or with "margin:N" of every N neighbours
    only the one nearest to the decision boundary."""

    prune: str = "idle:3"
    """Which constraints with α = 0 to drop after a pass: all ("aggressive"), those idle for N passes once they make up
    a twentieth of the cache ("idle:N"), or none ("never").

    With slack "all" a pass adds only one constraint, and a constraint may stay idle for 8·N passes.
    """

    slack: str = "auto"
    """Which examples share a slack: none ("example"), N neighbours ("block:N"), a "shard" or "all"; "auto" chooses."""

    cache_bytes: float = math.inf
    """Memory limit for cached constraints, which are coalesced to stay below it. The bounds stay proven.

    Without a limit, nothing is coalesced, and a run ends with a message when they take half of the machine's memory.
    """

    offender_cache: int = 0
    """With shared slacks: number of recent offenders per example that workers try before they call the oracle."""

    start: str | None = None
    """Model to warm-start from with its dual, trained on the same data or on its first shards."""

    seed: int = 0
    """Random seed for the order of shards and of ascent steps."""

    mode: str = "deterministic"
    """"deterministic": fixed rounds; the weights are bit-identical for any number of workers. "async": workers scan
    while the coordinator ascends, and neither waits for the other; the bounds are equally proven."""

    max_staleness: int = 8
    """With mode "async": largest number of new weight versions that may be published during a scan."""

    def __post_init__(self) -> None:
        if not 0 < self.C < math.inf:
            raise InputError(f"solver.C must be positive and finite, got {self.C}")
        if not 0 < self.gap < 1:
            raise InputError(f"solver.gap must be a fraction between 0 and 1, got {self.gap}")
        if self.max_passes < 1:
            raise InputError(f"solver.max_passes must be at least 1, got {self.max_passes}")
        if not self.max_seconds > 0:
            raise InputError(f"solver.max_seconds must be positive, got {self.max_seconds}")
        if self.seed < 0:
            raise InputError(f"solver.seed must not be negative, got {self.seed}")
        check_choice("solver.mode", self.mode, MODES)
        if self.max_staleness < 1:
            raise InputError(f"solver.max_staleness must be at least 1, got {self.max_staleness}")
        check_pattern("solver.schedule", self.schedule, SCHEDULES)
        check_pattern("solver.slack", self.slack, SLACKS)
        check_choice("solver.stream", self.stream, STREAMS)
        if self.stream == "yes" and self.mode == "async":
            raise InputError('solver.stream = "yes" needs mode "deterministic": asynchronous scans overlap the ascent')
        if not self.cache_bytes > 0:
            raise InputError(f"solver.cache_bytes must be positive, got {self.cache_bytes}")
        if self.offender_cache < 0:
            raise InputError(f"solver.offender_cache must not be negative, got {self.offender_cache}")
        check_pattern("solver.prune", self.prune, PRUNES)
        if self.average and not self.schedule.startswith("reprocess:"):
            raise InputError(f'solver.average needs the schedule "reprocess:K", got {self.schedule!r}')
        if not self.process and not self.schedule.startswith("reprocess:"):
            raise InputError(f'solver.process = false needs the schedule "reprocess:K", got {self.schedule!r}')
        check_pattern("solver.select", self.select, SELECTIONS)

    @property
    def pool(self) -> int:
        """Neighbours of which one is selected; 1 for all."""
        return int(self.select.partition(":")[2] or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorConfig:
    mean: str | None = None
    """Prior mean of the weights: a .npy file, or a model folder for transfer learning. Default: 0."""

    precision: float | str = 1.0
    """Prior precision: a number, or a .npy file with one number per weight or with a full matrix."""

    nonnegative: list[Any] = field(default_factory=list)
    """Weights constrained to be nonnegative: indices from 0, or ranges such as "0:10" (10 excluded)."""

    def __post_init__(self) -> None:
        if isinstance(self.precision, float) and not 0 < self.precision < math.inf:
            raise InputError(f"prior.precision must be positive and finite, got {self.precision}")
        for item in self.nonnegative:
            index_range(item)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCluster:
    workers: int = 2
    """Number of worker processes."""

    threads: int = 1
    """Threads per worker; kernels release the GIL."""

    memory: str = "auto"
    """Memory limit per worker, for example "4GiB"; "auto" divides the machine's memory among the workers."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"auto|\d+(\.\d+)? *([kMGTP]i?)?B?", self.memory):
            raise InputError(f'cluster.local.memory must be "auto" or a size such as "4GiB", got {self.memory!r}')
        if self.workers < 1 or self.threads < 1:
            raise InputError(
                f"cluster.local needs at least one worker and one thread, got {self.workers} and {self.threads}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    scheduler: str | None = None
    """Address of a running Dask scheduler, for example "tcp://10.0.0.1:8786"."""

    local: LocalCluster | None = None
    """Start a Dask cluster on this machine. Without scheduler and local, threads of this process scan the shards."""

    timeout: float = 10.0
    """Seconds to wait for the scheduler and for its first worker."""

    patience: float = 300.0
    """Seconds to wait during a run for a lost scheduler, or for a worker when all are lost, before the run ends."""

    silence: float = 60.0
    """Seconds without a heartbeat after which a worker counts as failed and its scans move to other workers."""

    scan_timeout: float = 1800.0
    """Seconds without any finished scan, although workers are connected, before the run ends."""

    tls_ca: str | None = None
    """PEM file of the certificate authority that signed the scheduler's certificate; for addresses tls://host:port."""

    tls_cert: str | None = None
    """PEM file of the client certificate to present to the scheduler."""

    tls_key: str | None = None
    """PEM file of the client certificate's private key."""

    def __post_init__(self) -> None:
        if self.scheduler is not None:
            check_address("cluster.scheduler", self.scheduler)
        self._check_tls()
        if self.scheduler and self.local:
            raise InputError("cluster.scheduler and cluster.local exclude each other: set one")
        for name in ("timeout", "patience", "silence", "scan_timeout"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"cluster.{name} must be a positive number of seconds, got {getattr(self, name)}")

    def _check_tls(self) -> None:
        files = {name: getattr(self, name) for name in TLS}
        missing = [f"cluster.{name}" for name, file in files.items() if file is None]
        if 0 < len(missing) < len(files):
            raise InputError(f"cluster.tls_ca, tls_cert and tls_key go together: {' and '.join(missing)} not given")
        if not missing and not (self.scheduler or "").startswith("tls://"):
            found = self.scheduler or "no address"
            raise InputError(f"cluster.tls_ca, tls_cert and tls_key need a scheduler at tls://host:port, got {found}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    url: str | None = None
    """Path or URL of a data set to score certified weights on, after each pass that lowers the upper bound."""

    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    """fsspec options for eval.url, such as credentials."""

    retry_seconds: float = RETRY_SECONDS
    """Seconds to keep retrying a failed shard read from remote storage before the run ends."""

    score: str | None = None
    """The score that eval.patience follows, such as "accuracy"; the problem's first if not given."""

    patience: int = 0
    """Stop, certified or not, after so many evaluations in a row without a better score; 0 never stops."""

    def __post_init__(self) -> None:
        if self.url is not None:
            check_url("eval.url", self.url)
        check_seconds("eval.retry_seconds", self.retry_seconds)
        if self.patience < 0:
            raise InputError(f"eval.patience must be at least 0, got {self.patience}")
        if self.url is None and (self.patience or self.score is not None):
            raise InputError("eval.patience and eval.score need eval.url, the data set to evaluate on")
        if self.score is not None and not self.patience:
            raise InputError("eval.score needs eval.patience: a score that no stop depends on is left out")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputConfig:
    url: str
    """The model folder to write, local or remote."""

    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    """fsspec options for output.url, such as credentials."""

    retry_seconds: float = RETRY_SECONDS
    """Seconds to keep retrying a failed write to remote storage before the run ends."""

    overwrite: bool = False
    """Replace an existing model."""

    dual: str = "full"
    """"full": save all that `verify` needs to rebuild the lower bound; "summary": `verify` trusts the trainer."""

    log: str | None = None
    """Local file for the run log, one JSON object per line and round. `--set output.url=…` alone moves it, too."""

    mlflow: str | None = None
    """MLflow tracking URI, such as http://host:5000; needs mlflow-skinny (`pip install mlflow-skinny`)."""

    tensorboard: str | None = None
    """Local TensorBoard folder for this run alone; needs tensorboardX (`pip install tensorboardX`)."""

    checkpoint_every: float = 0.0
    """Seconds between checkpoints, kept in the model folder until the run ends; 0: a checkpoint only on SIGTERM."""

    def __post_init__(self) -> None:
        check_url("output.url", self.url)
        if self.mlflow is not None:
            check_url("output.mlflow", self.mlflow)
        if self.tensorboard is not None and (not self.tensorboard.strip() or "://" in self.tensorboard):
            raise InputError(f"output.tensorboard must name a local folder, got {self.tensorboard!r}")
        check_seconds("output.retry_seconds", self.retry_seconds)
        check_seconds("output.checkpoint_every", self.checkpoint_every)
        check_choice("output.dual", self.dual, DUALS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    data: DataConfig
    problem: ProblemConfig
    output: OutputConfig
    solver: SolverConfig = SolverConfig()
    prior: PriorConfig = PriorConfig()
    cluster: ClusterConfig = ClusterConfig()
    kernel: KernelConfig | None = None
    eval: EvalConfig = EvalConfig()

    def public(self) -> dict[str, Any]:
        """The configuration as models and logs record it: everything but storage options."""
        sections = dataclasses.asdict(self)
        for section in ("data", "output", "eval"):
            del sections[section]["storage_options"]
        sections["problem"] = {"kind": self.problem.kind, **self.problem.options}
        solver = sections["solver"]
        sections["solver"] = {key: value for key, value in solver.items() if value != math.inf}  # JSON has no infinity
        return sections
