"""The configuration of a run: one frozen dataclass per section, read from TOML and checked."""

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
STREAMS = ("auto", "yes", "no")
PRUNES = ("aggressive", "idle:N", "never")
DUALS = ("full", "summary")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_pattern(name: str, value: str, choices: Sequence[str]) -> None:
    """Like check_choice, where a choice such as "idle:N" stands for a word and a positive integer."""
    word, colon, number = value.partition(":")
    fits = any(choice.partition(":")[0] == word and (":" in choice) == bool(colon) for choice in choices)
    if not fits or (colon and not (number.isascii() and number.isdigit() and int(number) > 0)):
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_seconds(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise InputError(f"{name} must be a number of seconds, got {value}")


def check_address(name: str, address: str) -> None:
    """Refuse early what Dask would report late or unclearly."""
    if not ADDRESS.fullmatch(address):
        raise InputError(f"{name} {address}: not an address; expected one such as tcp://10.0.0.1:8786")


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

    average: bool = False
    """With schedule "reprocess:K": consider w̄, the average over process steps, for the model."""

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


def index_range(item: Any) -> range:
    """Indices of the weights that `item` names: an index or "first:last"."""
    if isinstance(item, int) and not isinstance(item, bool) and item >= 0:
        return range(item, item + 1)
    found = re.fullmatch(r"(\d+):(\d+)", item) if isinstance(item, str) else None
    if found and int(found[1]) < int(found[2]):
        return range(int(found[1]), int(found[2]))
    raise InputError(f'prior.nonnegative takes numbers from 0 and ranges such as "0:10", got {item!r}')


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

    def public(self) -> dict[str, Any]:
        """The configuration as models and logs record it: everything but storage options."""
        sections = dataclasses.asdict(self)
        for section in ("data", "output"):
            del sections[section]["storage_options"]
        sections["problem"] = {"kind": self.problem.kind, **self.problem.options}
        solver = sections["solver"]
        sections["solver"] = {key: value for key, value in solver.items() if value != math.inf}  # JSON has no infinity
        return sections


def load(path: str | Path, settings: Sequence[str] = (), cluster: Mapping[str, Any] | None = None) -> Config:
    """Read a TOML file and apply settings such as "solver.C=0.1"; keys of `cluster` take precedence over both."""
    table = read_table(path)
    written = dict(output) if isinstance(output := table.get("output"), dict) else {}
    for setting in settings:
        apply(table, setting)
    if isinstance(output := table.get("output"), dict):
        move_log(output, written)
    if cluster and isinstance(section := table.setdefault("cluster", {}), dict):
        if "scheduler" in cluster:
            section.pop("local", None)
        section.update(cluster)
    return from_table(table, str(path))


def move_log(output: dict[str, Any], written: Mapping[str, Any]) -> None:
    """Where settings move output.url but not output.log, name the log after the new model: a run, a log.

    The log stays a local file: next to the model, or in its old folder if the model is remote.
    """
    url, log = output.get("url"), output.get("log")
    if not (isinstance(url, str) and isinstance(log, str)) or url == written.get("url") or log != written.get("log"):
        return
    model = Path(url.rstrip("/"))
    folder = Path(log).parent if "://" in url else model.parent
    output["log"] = (folder / f"{model.name}.jsonl").as_posix()


def read_table(path: str | Path) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; expected a TOML file") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: not a TOML file: {error}") from None


def from_table(table: Mapping[str, Any], source: str = "config") -> Config:
    """Check a table of sections and turn it into a Config; error messages name it `source`."""
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
    """Set one "section.key=value" in `table`; a value that is not valid TOML is taken as a string."""
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
    """`text` parsed as a TOML value, or unchanged if it is none."""
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["value"] if len(found) == 1 else text


def parse(cls: type[T], table: Any, source: str, prefix: str = "") -> T:
    """Build the dataclass `cls` from a TOML table; refuse unknown keys, missing keys and values of a wrong type."""
    if not isinstance(table, Mapping):
        raise InputError(f"{source}: {prefix.rstrip('.')} must be a section, got {shown_setting(prefix, table)}")
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
        raise InputError(
            f"{source}: {name} must be {called.get(kind, kind.__name__)}, got {shown_setting(name, value)}"
        )
    return value


def shown_setting(name: str, value: Any) -> str:
    """`value` as shown in error messages, with nothing that could hold credentials."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if "storage_options" in name:
        return "something else"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def nearest(key: str, known: Mapping[str, Any], prefix: str = "") -> str:
    """The suggestion that ends an error message about an unknown key."""
    if not known:
        return "; there are none"
    folded = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(key.casefold(), folded, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {prefix}{folded[close[0]]}?"
    return f"; known are {', '.join(prefix + name for name in sorted(known))}"


def check_url(name: str, url: str) -> None:
    """Refuse a URL that is empty or holds credentials, since URLs are displayed and recorded."""
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
