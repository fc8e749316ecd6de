"""Everything a run can be told, and nothing it works out for itself."""

import dataclasses
import difflib
import math
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from distdual.errors import InputError

T = TypeVar("T")

RETRY_SECONDS = 60.0
ADDRESS = re.compile(
    r"((?P<protocol>tcp|tls|ws|wss|ucx)://)?(?P<host>\[[\da-fA-F:.]+\]|[^\s/:\[\]]+)(:(?P<port>\d{1,5}))?"
)
TLS = ("tls_ca", "tls_cert", "tls_key")  # keys of [cluster]
SCHEDULES = ("slope", "gap", "one-pass", "ratio:R", "reprocess:K", "mine", "batch")
MODES = ("deterministic", "async")
SLACKS = ("auto", "example", "block:N", "shard", "all")
PRUNES = ("aggressive", "idle:N", "never")
DUALS = ("full", "summary")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_pattern(name: str, value: str, choices: Sequence[str]) -> None:
    """Like check_choice, where a choice such as "idle:N" stands for a word and a positive whole number."""
    word, colon, number = value.partition(":")
    fits = any(choice.partition(":")[0] == word and (":" in choice) == bool(colon) for choice in choices)
    if not fits or (colon and not (number.isascii() and number.isdigit() and int(number) > 0)):
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_seconds(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise InputError(f"{name} must be a number of seconds, got {value}")


def check_address(name: str, address: str) -> None:
    """Say at once what Dask would say late or not clearly."""
    if not ADDRESS.fullmatch(address):
        raise InputError(f"{name} {address}: not an address; expected one such as tcp://10.0.0.1:8786")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    url: str
    """The data set: a local folder or an fsspec URL such as s3://bucket/folder."""

    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    """How to reach it, as fsspec takes it. Never written to a model, a log or an error message."""

    retry_seconds: float = RETRY_SECONDS
    """For so long workers ask a remote storage again that fails to give them a shard; the run then ends."""

    def __post_init__(self) -> None:
        check_url("data.url", self.url)
        check_seconds("data.retry_seconds", self.retry_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemConfig:
    kind: str
    """What is learnt: one of the built-in problems, such as "binary", or your own "package.module:Class"."""

    options: dict[str, Any] = field(default_factory=dict)
    """The problem's own keys, as they stand in [problem]; the problem checks them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverConfig:
    C: float = 1.0
    """Weight of the summed loss against 1/2 ||w||²."""

    gap: float = 1e-3
    """Stop once (upper − lower) / upper is proven to be at most this."""

    max_passes: int = 200
    """Stop after this many passes over the data set, certified or not."""

    max_seconds: float = math.inf
    """Stop after this time, certified or not."""

    schedule: str = "slope"
    """When to scan and when to ascend: "slope", "gap", "one-pass", "ratio:R", "reprocess:K", "mine" or "batch"."""

    average: bool = False
    """With schedule "reprocess:K": offer w̄, the average over process steps, as the model."""

    prune: str = "idle:3"
    """Which constraints with α = 0 are dropped after a pass: "aggressive" all, "idle:N" those idle for N once
    they are a twentieth of all, "never".

    Where all examples share one slack, a pass adds but one constraint, and N counts eightfold.
    """

    slack: str = "auto"
    """Who shares a slack: each "example" has its own, a "block:N" of N neighbours, a "shard", "all", or as it fits."""

    cache_bytes: float = math.inf
    """Memory for cached constraints; where it runs short, they are coalesced. The bounds stay proven."""

    offender_cache: int = 0
    """With shared slacks: how many recent offenders of an example workers try before they call the oracle."""

    start: str | None = None
    """A model whose dual to start from, trained on the same data or on its first shards."""

    seed: int = 0
    """Decides the order of shards and of ascent steps."""

    mode: str = "deterministic"
    """"deterministic": fixed rounds; the weights do not depend on the number of workers, bit for bit. "async": workers
    scan while the coordinator ascends, and neither waits for the other; the bounds are as proven."""

    max_staleness: int = 8
    """With mode "async": how many versions of the weights may be published while a scan is under way."""

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
        if not self.cache_bytes > 0:
            raise InputError(f"solver.cache_bytes must be positive, got {self.cache_bytes}")
        if self.offender_cache < 0:
            raise InputError(f"solver.offender_cache must not be negative, got {self.offender_cache}")
        check_pattern("solver.prune", self.prune, PRUNES)
        if self.average and not self.schedule.startswith("reprocess:"):
            raise InputError(f'solver.average needs the schedule "reprocess:K", got {self.schedule!r}')


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorConfig:
    mean: str | None = None
    """Where the weights are drawn to: a .npy file or a model folder, for transfer. Default: 0."""

    precision: float | str = 1.0
    """How strongly: a number, or a .npy file with one number a weight or with a full matrix."""

    nonnegative: list[Any] = field(default_factory=list)
    """Weights that may not be negative: numbers from 0, or ranges such as "0:10" (without the 10)."""

    def __post_init__(self) -> None:
        if isinstance(self.precision, float) and not 0 < self.precision < math.inf:
            raise InputError(f"prior.precision must be positive and finite, got {self.precision}")
        for item in self.nonnegative:
            index_range(item)


def index_range(item: Any) -> range:
    """Weights named by a number or by "first:last"."""
    if isinstance(item, int) and not isinstance(item, bool) and item >= 0:
        return range(item, item + 1)
    found = re.fullmatch(r"(\d+):(\d+)", item) if isinstance(item, str) else None
    if found and int(found[1]) < int(found[2]):
        return range(int(found[1]), int(found[2]))
    raise InputError(f'prior.nonnegative takes numbers from 0 and ranges such as "0:10", got {item!r}')


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCluster:
    workers: int = 2
    """Worker processes."""

    threads: int = 1
    """Threads in each; kernels release the GIL."""

    memory: str = "auto"
    """Memory limit of each worker, for example "4GiB"; "auto" shares the machine's among them."""

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
    """Start a Dask cluster on this machine. Without both, shards are scanned by threads of this process."""

    timeout: float = 10.0
    """Seconds to wait for the scheduler and for its first worker."""

    patience: float = 300.0
    """Seconds that all workers, or the scheduler, may be away during a run before it ends."""

    silence: float = 60.0
    """Seconds without a sign of life after which a worker is given up and its scans go to others."""

    scan_timeout: float = 1800.0
    """Seconds that may pass without the end of any scan, though there are workers, before the run ends."""

    tls_ca: str | None = None
    """PEM file of the authority that the scheduler's certificate must be of; goes with an address tls://host:port."""

    tls_cert: str | None = None
    """PEM file of the certificate to show to the scheduler."""

    tls_key: str | None = None
    """PEM file of its key."""

    def __post_init__(self) -> None:
        if self.scheduler is not None:
            check_address("cluster.scheduler", self.scheduler)
        self._check_tls()
        if self.scheduler and self.local:
            raise InputError("cluster.scheduler and cluster.local exclude each other: name one")
        for name in ("timeout", "patience", "silence", "scan_timeout"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"cluster.{name} must be a positive number of seconds, got {getattr(self, name)}")

    def _check_tls(self) -> None:
        told = {name: getattr(self, name) for name in TLS}
        missing = [f"cluster.{name}" for name, file in told.items() if file is None]
        if 0 < len(missing) < len(told):
            raise InputError(f"cluster.tls_ca, tls_cert and tls_key go together: {' and '.join(missing)} not given")
        if not missing and not (self.scheduler or "").startswith("tls://"):
            found = self.scheduler or "no address"
            raise InputError(f"cluster.tls_ca, tls_cert and tls_key need a scheduler at tls://host:port, got {found}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputConfig:
    url: str
    """The model folder to write, local or remote."""

    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    """How to reach it, as fsspec takes it."""

    retry_seconds: float = RETRY_SECONDS
    """For so long a remote storage that fails to take a file is asked again; the run then ends."""

    overwrite: bool = False
    """Replace a model that is there already."""

    dual: str = "full"
    """"full": all that `verify` needs to rebuild the lower bound; "summary": the bound then rests on the trainer."""

    log: str | None = None
    """A local file that gets one JSON object a line for every round."""

    mlflow: str | None = None
    """An MLflow tracking server, as http://host:5000, or another tracking URI; needs distdual[mlflow]."""

    tensorboard: str | None = None
    """A local folder of this run's own for TensorBoard; needs distdual[tensorboard]."""

    checkpoint_every: float = 0.0
    """Seconds between checkpoints, which go to the model folder until the run has ended; 0 for none but on SIGTERM."""

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

    def public(self) -> dict[str, Any]:
        """What may be written down: everything but how to reach the storage."""
        told = dataclasses.asdict(self)
        for section in ("data", "output"):
            del told[section]["storage_options"]
        told["problem"] = {"kind": self.problem.kind, **self.problem.options}
        told["solver"] = {key: value for key, value in told["solver"].items() if value != math.inf}  # JSON has none
        return told


def load(path: str | Path, settings: Sequence[str] = (), cluster: Mapping[str, Any] | None = None) -> Config:
    """Read a TOML file, apply settings such as "solver.C=0.1", and put the scheduler of `cluster` above all."""
    table = read_table(path)
    for setting in settings:
        apply(table, setting)
    if cluster and isinstance(section := table.setdefault("cluster", {}), dict):
        if "scheduler" in cluster:
            section.pop("local", None)
        section.update(cluster)
    return from_table(table, str(path))


def read_table(path: str | Path) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; expected a TOML file") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: not a TOML file: {error}") from None


def from_table(table: Mapping[str, Any], source: str = "config") -> Config:
    """Check a table of sections and turn it into a Config; `source` is what messages call it."""
    sections = dict(table)
    problem = sections.get("problem")
    if isinstance(problem, Mapping):
        options = {key: value for key, value in problem.items() if key != "kind"}
        kind = {"kind": problem["kind"]} if "kind" in problem else {}
        sections["problem"] = {**kind, "options": options}
    try:
        return parse(Config, sections, source)
    except InputError as error:
        text = str(error) if str(error).startswith(source) else f"{source}: {error}"
        needs = "; a run needs data.url, problem.kind and output.url" if text.endswith(" is missing") else ""
        raise InputError(text + needs) from None


def apply(table: dict[str, Any], setting: str) -> None:
    """Put one "section.key=value" into `table`; the value is TOML, or else a plain string."""
    name, equals, text = setting.partition("=")
    keys = [key.strip() for key in name.split(".")]
    if not equals or len(keys) < 2 or not all(keys):
        raise InputError(f"--set {name}: expected section.key=value, for example solver.C=0.1")
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise InputError(f"--set {name}: {key} is a value, not a section")
    table[keys[-1]] = toml_value(text)


def toml_value(text: str) -> Any:
    """`text` as TOML reads it after an equals sign, or as it stands."""
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["value"] if len(found) == 1 else text


def parse(cls: type[T], table: Any, source: str, prefix: str = "") -> T:
    """Make the dataclass `cls` of a TOML table: no unknown key, no missing key, no value of another type."""
    if not isinstance(table, Mapping):
        raise InputError(f"{source}: {prefix.rstrip('.')} must be a section, got {shown(prefix, table)}")
    fields = {f.name: f for f in dataclasses.fields(cast(Any, cls))}
    hints = typing.get_type_hints(cls)
    for key in table:
        if key not in fields:
            raise InputError(f"{source}: unknown key {prefix}{key}{nearest(str(key), fields, prefix)}")
    for name, spec in fields.items():
        required = spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING
        if required and name not in table:
            raise InputError(f"{source}: {prefix}{name} is missing")
    values = {key: convert(hints[key], value, source, prefix + key) for key, value in table.items()}
    try:
        return cls(**values)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def convert(hint: Any, value: Any, source: str, name: str) -> Any:
    """Check `value` against a type hint; an int may stand for a float, nothing else is converted."""
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        options = [option for option in typing.get_args(hint) if option is not types.NoneType]
        hint = str if str in options and isinstance(value, str) else options[0]
    if dataclasses.is_dataclass(hint):
        return parse(cast(type[Any], hint), value, source, name + ".")
    kind = typing.get_origin(hint) or hint
    if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**1023:
        return float(value)
    if (kind is not bool and isinstance(value, bool)) or not isinstance(value, kind):
        called = {
            float: "a number",
            int: "a whole number",
            str: "a string",
            bool: "true or false",
            dict: "a table",
            list: "a list",
        }
        raise InputError(f"{source}: {name} must be {called.get(kind, kind.__name__)}, got {shown(name, value)}")
    return value


def shown(name: str, value: Any) -> str:
    """A value as an error message may show it: nothing that could hold credentials."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if "storage_options" in name:
        return "something else"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def nearest(key: str, known: Mapping[str, Any], prefix: str = "") -> str:
    """The end of a sentence about an unknown key."""
    if not known:
        return "; there are none"
    folded = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(key.casefold(), folded, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {prefix}{folded[close[0]]}?"
    return f"; known are {', '.join(prefix + name for name in sorted(known))}"


def check_url(name: str, url: str) -> None:
    """Refuse an address that is empty, or that holds credentials: it will be shown and written down."""
    if not url.strip():
        raise InputError(f"{name} must name a folder, got an empty string")
    for protocol, host in re.findall(r"(\w+)://([^/]*)", url):
        # A secret may itself hold a slash; no bucket but an access point (arn:…) has a colon in its name.
        colon = protocol in ("s3", "s3a") and ":" in host and not host.startswith("arn:")
        if "@" in host or colon:
            raise InputError(
                f"{name} holds credentials before its host or bucket; "
                "give them in storage_options or in the environment instead"
            )
