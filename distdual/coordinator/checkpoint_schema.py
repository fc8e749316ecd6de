"""What a checkpoint must hold: its manifest, its arrays, and the state of the run."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from distdual.certificate.bounds import ShardLoss
from distdual.coordinator.latent_loop import Turn
from distdual.coordinator.provenance import POSITION_BITS
from distdual.coordinator.row_arrays import Arrays
from distdual.coordinator.schedule import Cause, Piece
from distdual.errors import InputError
from distdual.kernels.rows import Ints
from distdual.model.schema import DIGEST, MEMBERS
from distdual.problems.base import Magnitude
from distdual.report.round_log import Round, Totals
from distdual.schema import (
    array,
    below,
    choice,
    each,
    flag,
    maybe,
    number,
    record,
    rising,
    row,
    table,
    table_of,
    text,
    whole,
)
from distdual.solver.ascent_plan import Ascent
from distdual.solver.cache import NO_REFERENCE, ConstraintCache

ARRAY_FILES = r"(rows|constraints|weights|files|latent|expansion)\.npz"
OBJECT = text(rf"\d{{8}}-({ARRAY_FILES}|(state|latent)\.json|ledger\.bin)", "an object")
CRC_RULE = whole(0, 2**32 - 1)

DATA_IDENTITY = table({"url": text(), "n_examples": whole(1), "numbering": maybe(text()), "checksum": each(CRC_RULE)})
MANIFEST_RULE = table(
    {
        "format": whole(),
        "number": whole(0, 99_999_999),
        "run": table(
            {"problem": table({}, others=True), "solver": table({}, others=True), "data": DATA_IDENTITY}, others=True
        ),
        "members": maybe(text(MEMBERS, "a folder in dual/")),
        "files": table_of(DIGEST, OBJECT),
        "summary": table({}, others=True),
    },
    others=True,
)

ANY_NUMBER = number(finite=False)
PASS = table(
    {
        "certify": flag,
        "rounds": each(each(row(Piece))),
        "between": record(Ascent),
        "last": record(Ascent),
        "prune": flag,
        "overlap": flag,
        "visits": whole(1),
    }
)
SLACK = table({"per_group": maybe(whole(1)), "is_all": flag})
BOUNDS = table(
    dict.fromkeys(("best_upper", "best_rounding", "estimate", "lift", "best_estimate"), ANY_NUMBER)
    | {"best_version": whole(-1)},
    {"best_relaxed": ANY_NUMBER, "best_found": ANY_NUMBER},
)
UNDERWAY = table(
    {
        "plan": PASS,
        "slack": SLACK,
        "losses": each(row(ShardLoss)),
        "done": whole(),
        "version": whole(-1),
        "new": ANY_NUMBER,
    }
)
GENERATOR_RULE = table({"bit_generator": choice("PCG64"), "state": table({}, others=True)}, others=True)
SOLVER = table(
    {
        "n_averaged": whole(),
        "updates": whole(),
        "lower": ANY_NUMBER,
        "rounding": ANY_NUMBER,
        "magnitude": row(Magnitude),
        "claim": ANY_NUMBER,
        "reached": ANY_NUMBER,
        "trust": ANY_NUMBER,
        "stage": number(positive=True),
        "sample": GENERATOR_RULE,
    },
    {"centre": number(), "ceiling": ANY_NUMBER},
)
PARTITION = table(
    {
        "slack": text(r"example|shard|all|block:[1-9]\d{0,15}", "a slack"),
        "coalesced": whole(),
        "events": each(text()),
        "n_mixtures": whole(),
    }
)
STATE = table(
    {
        "referenced": flag,
        "solver": SOLVER,
        "partition": PARTITION,
        "totals": record(Totals),
        "bounds": BOUNDS,
        "version": whole(),
        "seconds": ANY_NUMBER,
        "history": each(record(Round)),
        "underway": maybe(UNDERWAY),
    }
)
EXPANSION_STATE = table(
    {
        **dict.fromkeys(("searched", "version", "updates"), whole()),
        **dict.fromkeys(("inner", "seconds"), ANY_NUMBER),
        "double": flag,
        "totals": record(Totals),
        "history": each(record(Round)),
    }
)
BEST = table(
    {
        "trace": each(record(Turn)),
        "stop": table({"cause": choice(*(cause.value for cause in Cause)), "reason": text()}),
        "state": STATE,
    }
)
LATENT_RULE = table(
    {
        **dict.fromkeys(("restart", "calls", "updates"), whole()),
        **dict.fromkeys(("begun_at", "gap"), ANY_NUMBER),
        "reached": each(ANY_NUMBER),
        "tight": flag,
        "trace": each(record(Turn)),
        "spent": each(record(Totals)),
        "best": maybe(BEST),
    }
)


def check_constraint_columns(arrays: Arrays, cache: ConstraintCache, n_examples: int) -> int:
    """The number of constraints, whose columns have the types and lengths of those of a cache."""
    fresh = cache.columns()
    if set(arrays) != set(fresh):
        raise InputError(f"constraints with the columns {', '.join(sorted(arrays))}")
    n = len(array("example", arrays["example"], np.int64, (None,)))
    some = {"key_indptr": n + 1, "key_values": None, "gram_indptr": None, "gram": None, "reference": None}
    some |= {} if cache.prior.full else {"images": None}
    for name, like in fresh.items():
        array(name, arrays[name], like.dtype, (some.get(name, n), *like.shape[1:]), finite=name != "cost")
    for name in ("cost", "alpha", "curve"):
        array(name, arrays[name], np.float64, (n,), low=0, finite=name != "cost")
    cost = arrays["cost"]
    if np.where(arrays["example"] < 0, cost != np.inf, ~np.isfinite(cost)).any():
        raise InputError("cost: infinite for an example, or finite for w_k ≥ 0")
    own = cache.n_weights if cache.prior.full else 0
    below("example", arrays["example"] + own, n_examples + own)
    rising("key_indptr", arrays["key_indptr"], len(arrays["key_values"]))
    if len(arrays["gram_indptr"]) not in (0, n + 1):
        raise InputError(f"gram_indptr: {len(arrays['gram_indptr'])} entries for {n} constraints")
    return n


def check_weights(arrays: Arrays, n_weights: int) -> None:
    asked = {"asked"} & set(arrays)  # the weights that a pass of several rounds certifies
    if set(arrays) - asked != {"v", "w", "mean", "average", "random", "best_w"}:
        raise InputError(f"weights with the arrays {', '.join(sorted(arrays))}")
    for name in ("v", "w", "average", "best_w", *asked):
        array(name, arrays[name], np.float64, (n_weights,))
    array("mean", arrays["mean"], np.float64, (None if not len(arrays["mean"]) else n_weights,))
    array("random", arrays["random"], np.uint64, (1,))


def check_files(arrays: Arrays, n_mixtures: int, n_shards: int, reference: Ints) -> None:
    """Refuse members files of shards that are not there, and references to what no file holds."""
    if set(arrays) != {"shards", "covers", "batches", "offsets"}:
        raise InputError(f"files with the arrays {', '.join(sorted(arrays))}")
    shards = array("shards", arrays["shards"], np.int64, (None,))
    below("shards", shards, n_shards)
    array("covers", arrays["covers"], np.int64, (len(shards),), low=0)
    batches = array("batches", arrays["batches"], np.int64, (None,), low=0)
    array("offsets", arrays["offsets"], np.int64, (len(batches),), low=0)
    below("batches", batches, n_mixtures)
    check_references(reference, len(shards), n_mixtures)


def check_references(reference: Ints, n_files: int, n_mixtures: int) -> None:
    reference = reference[reference != NO_REFERENCE]
    plain = reference[reference >= 0] >> POSITION_BITS
    below("a reference to a members file", plain, max(n_files, 1))
    below("a reference to a mixture", -1 - reference[reference < 0], n_mixtures)


def check_underway(values: Mapping[str, Any] | None, sizes: Ints) -> None:
    """Refuse pieces that are not of the shards, which have these numbers of examples."""
    for pieces in values["plan"]["rounds"] if values else ():
        for shard, begin, end in pieces:
            if not (shard < len(sizes) and begin < end <= sizes[shard]):
                raise InputError(f"a piece of shard {shard} from example {begin} to {end}")
    if values and values["done"] > (n_scans := len(values["plan"]["rounds"]) * values["plan"]["visits"]):
        raise InputError(f"{values['done']} scans are done of {n_scans}")
