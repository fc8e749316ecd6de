"""How long does a certified chain model take on OCR letters, beside python-crfsuite's lbfgs on the same features?

    python benchmarks/ocr.py DATA_FOLDER [--json]

DATA_FOLDER/ocr_letters/letters.npz holds the words; fold 0 is for testing. C = 0.1, pixels and first-order
transitions, no bias, no weights for the first and the last letter. Times of distdual are medians of three runs after
one that compiles, each reading its shards from disk; crfsuite, with its default settings, gets one run on sequences in
memory.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pycrfsuite
from datasets import need

import distdual
from distdual.data.prepare import prepare_arrays
from distdual.prediction import predict

RUNS = 3
KNOWN = (1942.97, 1944.34)  # bounds of P* from an independent run
TEST_FOLD = 0


class Words(NamedTuple):
    x: Any  # (n_letters, 128) float32, 0 or 1
    y: Any  # (n_letters,) letters
    lengths: Any


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, metavar="DATA_FOLDER")
    arguments.add_argument("--json", action="store_true", help="print one JSON object")
    told = arguments.parse_args()
    train, test = read(told.folder)
    with tempfile.TemporaryDirectory(prefix="distdual-ocr-") as scratch:
        figures = compare(train, test, scratch)
    print(json.dumps(figures) if told.json else "\n".join(f"{name:<28} {value}" for name, value in figures.items()))


def read(folder: Path) -> tuple[Words, Words]:
    """The words for training and those for testing."""
    packed = np.load(need(folder, "ocr_letters", "letters.npz"))
    x = np.unpackbits(packed["X_packed"], axis=1).astype(np.float32)
    y = np.array([chr(ord("a") + code) for code in packed["y"]])
    lengths = np.diff(packed["offsets"])
    testing = packed["fold"] == TEST_FOLD
    of_letter = np.repeat(testing, lengths)
    return Words(x[~of_letter], y[~of_letter], lengths[~testing]), Words(x[of_letter], y[of_letter], lengths[testing])


def compare(train: Words, test: Words, scratch: str) -> dict[str, Any]:
    for name, words in (("train", train), ("test", test)):
        options = {"shuffle": 0, "shard_bytes": 4 << 20} if name == "train" else {}
        prepare_arrays(words.x, words.y, f"{scratch}/{name}", "chain", lengths=words.lengths, **options)
    figures: dict[str, Any] = {}
    crf_seconds, crf_error = crfsuite(train, test, f"{scratch}/crf")
    for gap in (1e-2, 1e-3):
        seconds, result = median_time(lambda gap=gap: distdual.train(config_of(gap, scratch)))
        proven = result.certificate
        figures |= {
            f"seconds to {gap:g}": seconds,
            f"of crfsuite's ({gap:g})": seconds / crf_seconds,
            f"passes ({gap:g})": proven["passes"],
            f"ascent, wait ({gap:g})": (proven["ascent_seconds"], proven["wait_seconds"]),
            f"cache rows ({gap:g})": proven["cache_rows"],
        }
    checked = distdual.verify(f"{scratch}/model")
    found = predict(f"{scratch}/model", f"{scratch}/test")
    assert found.score is not None
    return {
        **figures,
        "lower": checked.lower,
        "upper": checked.upper,
        "gap": checked.gap,
        "verified": checked.certified,
        "agrees with the known P*": checked.lower <= KNOWN[1] and checked.upper >= KNOWN[0],
        "letter error": 1 - found.score["accuracy"],
        "word accuracy": found.score["sequence_accuracy"],
        "seconds of crfsuite": crf_seconds,
        "letter error of crfsuite": crf_error,
    }


def config_of(gap: float, scratch: str) -> dict[str, Any]:
    return {
        "data": {"url": f"{scratch}/train"},
        "problem": {"kind": "chain", "boundaries": False},
        "solver": {"C": 0.1, "gap": gap},
        "output": {"url": f"{scratch}/model", "overwrite": True},
    }


def crfsuite(train: Words, test: Words, model: str) -> tuple[float, float]:
    """Seconds of lbfgs training, and the letter error."""
    trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
    for features, tags in sequences(train):
        trainer.append(pycrfsuite.ItemSequence(features), tags)
    begin = time.perf_counter()
    trainer.train(model)
    seconds = time.perf_counter() - begin
    tagger = pycrfsuite.Tagger()
    tagger.open(model)
    right = sum(a == b for features, tags in sequences(test) for a, b in zip(tagger.tag(features), tags, strict=True))
    return seconds, 1 - right / len(test.y)


def sequences(words: Words) -> Any:
    """Each word as a list of the pixels set in each letter, and its letters."""
    for rows, tags in zip(*(np.split(part, np.cumsum(words.lengths)[:-1]) for part in (words.x, words.y)), strict=True):
        yield [[str(j) for j in np.flatnonzero(row)] for row in rows], tags.tolist()


def median_time(job: Callable[[], Any]) -> tuple[float, Any]:
    job()  # compiles, and fills the file cache
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        found = job()
        times.append(time.perf_counter() - begin)
    return statistics.median(times), found


if __name__ == "__main__":
    main()
