"""What `distdual train --dry-run` prints."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from distdual.cli.options import print_json, stdout
from distdual.config import Config
from distdual.errors import InputError
from distdual.report.number_format import counted, duration, size

if TYPE_CHECKING:
    from distdual.coordinator.dry_run import DryRun
    from distdual.report.price import Price


def show_dry_run(config: Config, price: "Price | None", as_json: bool, **others: Any) -> int:
    """Print the dry run of this config; `others` are options that need a run."""
    from distdual.coordinator.dry_run import dry_run

    given = [f"--{name}" for name, value in others.items() if value]
    if given:
        raise InputError(f"--dry-run trains nothing, so it takes no {' and no '.join(given)}")
    found = dry_run(config)
    cost = price.cost(found.expected_bytes, found.expected_gets) if price else None
    if as_json:
        print_json({**asdict(found), "expected_bytes": found.expected_bytes, "expected_cost": cost})
        return 0
    for name, text in lines(found, cost):
        stdout.print(f"{name:<22} {text}")
    if note := of_bias(config):
        stdout.print(note)
    return 0


def of_bias(config: Config) -> str:
    """What to say of a linear problem without a bias, which newcomers expect."""
    from distdual.problems.registry import lacks_bias

    return "bias: none (problem.bias = 0)" if lacks_bias(config.problem.kind, config.problem.options) else ""


def lines(found: "DryRun", cost: float | None) -> list[tuple[str, str]]:
    limit = "" if found.worker_memory is None else f" of {size(found.worker_memory)}"
    stay = "stay in memory: read once" if found.shards_stay_in_memory else "do not fit: read again in every pass"
    who = "this process" if found.worker_memory is None and found.workers == 1 else counted(found.workers, "worker")
    reads = f"{found.expected_passes_read} × {size(found.bytes_a_pass)} = {size(found.expected_bytes)}"
    told = [
        ("data set", f"{counted(found.examples, 'example')} in {counted(found.shards, 'shard')}"),
        ("a pass reads", f"{size(found.bytes_a_pass)} in {counted(found.gets_a_pass, 'GET')}"),
        ("shards", f"{stay}, by {who}"),
        ("memory of a worker", f"about {size(found.worker_needs)}{limit}"),
        ("memory of coordinator", f"about {size(found.coordinator_needs)}"),
        ("cached constraints", f"about {found.expected_cache_rows:,}, {size(found.expected_cache_bytes)}"),
        ("slack", found.slack),
        ("expected passes", f"about {found.expected_passes}"),
        ("expected reading", f"{reads}, {counted(found.expected_gets, 'GET')}"),
    ]
    if found.oracle_seconds_a_pass is not None:
        told.append(("oracle in a pass", f"about {duration(found.oracle_seconds_a_pass)} of one thread"))
    return told if cost is None else [*told, ("expected cost", f"{cost:.3g}")]
