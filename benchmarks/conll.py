"""How good and how fast are certified taggers on CoNLL-2000 chunks, beside python-crfsuite on the same features, and on
universal parts of speech of English-EWT?

    python benchmarks/conll.py DATA_FOLDER [--json] [--search]

Text is prepared with configs/chunking_templates.toml and configs/tagging_templates.toml, as `distdual prepare` does it.
distdual is trained to a certified gap of 1e-2, constraints idle for two passes are dropped. On chunks its time is the
median of three runs after one that compiles, each reading its shards from disk; crfsuite, with its default settings,
gets one run of each algorithm between these, on sequences in memory. English-EWT gets one run.

C comes from `--search`, which never looks at the test files. English-EWT has a development file for it; the training
text of the chunks is cut into five runs of sentences, each held out in turn: runs, as a random choice would leave
sentences of the same article on both sides. C = 0.1 was best in both: F1 93.80 % of the chunks held out, where 0.03
gave 92.95, 0.3 gave 93.67 and 1 gave 93.53; accuracy 95.16 % of the development file, against 94.71, 95.10 and 95.00.
A random tenth of the chunks, tried before, had put 0.3 ahead of 0.1, by 94.52 to 94.46.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pycrfsuite
from datasets import need

import distdual
from distdual.data.location import Location
from distdual.data.prepare import prepare
from distdual.data.shard import Shard
from distdual.data.store import open_dataset
from distdual.prediction import predict
from distdual.problems.chain import Chain

CONFIGS = Path(__file__).parents[1] / "configs"
RUNS = 3
C = 0.1
GRID = (0.03, 0.1, 0.3, 1.0)
FOLDS = 5
GAP = 1e-2
SHARDS = {"shuffle": 0, "shard_bytes": 4 << 20}


class Text(NamedTuple):
    """One task: its text files, the templates for them, and pairs of files to train and to choose C on."""

    train: Path
    test: Path
    templates: Path
    trials: list[tuple[Path, Path]]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, metavar="DATA_FOLDER")
    arguments.add_argument("--json", action="store_true", help="print one JSON object")
    arguments.add_argument("--search", action="store_true", help="only try values of C on held-out training sentences")
    told = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="distdual-conll-") as name:
        scratch = Path(name)
        tasks = {"chunks": chunks(told.folder, scratch), "upos": upos(told.folder)}
        if told.search:
            parts = {task: search(tasks[task], scratch / task) for task in tasks}
        else:
            parts = {
                "chunks": compare(tasks["chunks"], scratch / "chunks"),
                "upos": tag(tasks["upos"], scratch / "upos"),
            }
    figures = {f"{task}: {name}": value for task, part in parts.items() for name, value in part.items()}
    print(json.dumps(figures) if told.json else "\n".join(f"{name:<48} {value}" for name, value in figures.items()))


def chunks(folder: Path, scratch: Path) -> Text:
    with zipfile.ZipFile(need(folder, "nltk_conll2000", "conll2000.zip")) as packed:
        train, test = (Path(packed.extract(f"conll2000/{name}.txt", scratch)) for name in ("train", "test"))
    return Text(train, test, CONFIGS / "chunking_templates.toml", cut(train))


def cut(train: Path) -> list[tuple[Path, Path]]:
    """FOLDS times: a run of sentences held out, and a file with the others."""
    sentences = train.read_text().strip().split("\n\n")
    bounds = np.linspace(0, len(sentences), FOLDS + 1).astype(int).tolist()
    pairs = []
    for k, (begin, end) in enumerate(itertools.pairwise(bounds)):
        parts = {"train": sentences[:begin] + sentences[end:], "held": sentences[begin:end]}
        pair = train.with_name(f"train-{k}.txt"), train.with_name(f"held-{k}.txt")
        for file, part in zip(pair, parts.values(), strict=True):
            file.write_text("\n\n".join(part) + "\n")
        pairs.append(pair)
    return pairs


def upos(folder: Path) -> Text:
    names = ("train", "dev", "test")
    train, held, test = (need(folder, "ud_english_ewt", f"en_ewt-ud-{name}.conllu.xz") for name in names)
    return Text(train, test, CONFIGS / "tagging_templates.toml", [(train, held)])


# --- distdual


def prepared(train: Path, test: Path, templates: Path, folder: Path) -> dict[str, Any]:
    """Write folder/train and folder/test; tells what that took."""
    begin = time.perf_counter()
    [made] = prepare(train, folder / "train", "chain", templates=templates, overwrite=True, **SHARDS)
    seconds = time.perf_counter() - begin
    prepare(test, folder / "test", "chain", vocabulary=folder / "train", overwrite=True)
    return {"features": made.n_features, "seconds to prepare the training text": seconds}


def train(data: Path, model: Path, cost: float = C) -> tuple[float, dict[str, Any]]:
    """Seconds, and the certificate."""
    config = {
        "data": {"url": str(data)},
        "problem": {"kind": "chain"},
        "solver": {"C": cost, "gap": GAP, "prune": "idle:2"},
        "output": {"url": str(model), "overwrite": True},
    }
    begin = time.perf_counter()
    found = distdual.train(config)
    return time.perf_counter() - begin, found.certificate


def score_of(model: Path, data: Path) -> dict[str, float]:
    found = predict(str(model), str(data)).score
    assert found is not None
    return found


def checked(model: Path) -> dict[str, Any]:
    """What `verify` proves."""
    found = distdual.verify(str(model))
    return {"lower": found.lower, "upper": found.upper, "gap": found.gap, "verified": found.certified}


def tag(text: Text, folder: Path) -> dict[str, Any]:
    figures = prepared(text.train, text.test, text.templates, folder)
    seconds, proven = train(folder / "train", folder / "model")
    score = score_of(folder / "model", folder / "test")
    return {**figures, "seconds": seconds, "passes": proven["passes"], **checked(folder / "model"), **score}


def search(text: Text, folder: Path) -> dict[str, float]:
    """Mean scores of held-out sentences for each C."""
    scores: dict[str, list[float]] = {}
    for pair in text.trials:
        prepared(*pair, text.templates, folder)
        for cost in GRID:
            train(folder / "train", folder / "model", cost)
            for name, value in score_of(folder / "model", folder / "test").items():
                scores.setdefault(f"C = {cost:g}, {name}", []).append(value)
    return {name: statistics.mean(scores[name]) for name in sorted(scores) if name.endswith((" accuracy", "span_f1"))}


# --- crfsuite


def compare(text: Text, folder: Path) -> dict[str, Any]:
    figures = prepared(text.train, text.test, text.templates, folder)
    train(folder / "train", folder / "model")  # compiles, and fills the file cache
    times: list[float] = []
    for algorithm in ("averaged-perceptron", "lbfgs", None):
        seconds, proven = train(folder / "train", folder / "model")
        times.append(seconds)
        if algorithm is not None:
            took = crfsuite(folder / "train", algorithm, str(folder / algorithm))
            score = score_of_crfsuite(str(folder / algorithm), folder / "test")
            told = {"seconds": took, **{name: score[name] for name in ("accuracy", "span_f1")}}
            figures |= {f"{name} of crfsuite's {algorithm}": value for name, value in told.items()}
    seconds = statistics.median(times)
    return {
        **figures,
        "seconds": seconds,
        "of crfsuite's lbfgs": seconds / figures["seconds of crfsuite's lbfgs"],
        "passes": proven["passes"],
        "ascent, wait": (proven["ascent_seconds"], proven["wait_seconds"]),
        "cache rows": proven["cache_rows"],
        **checked(folder / "model"),
        **score_of(folder / "model", folder / "test"),
    }


def crfsuite(data: Path, algorithm: str, model: str) -> float:
    """Seconds of training."""
    trainer = pycrfsuite.Trainer(algorithm=algorithm, verbose=False)
    for shard, tags in shards(data):
        for features, at in sequences(shard):
            trainer.append(pycrfsuite.ItemSequence(features), [tags[code] for code in shard.y[at]])
    begin = time.perf_counter()
    trainer.train(model)
    return time.perf_counter() - begin


def score_of_crfsuite(model: str, data: Path) -> dict[str, float]:
    """Its predictions, scored as ours are."""
    tagger = pycrfsuite.Tagger()
    tagger.open(model)
    [(shard, tags)] = shards(data)
    codes = {tag: code for code, tag in enumerate(tags)}
    predicted = [codes[found] for features, _ in sequences(shard) for found in tagger.tag(features)]
    sums = Chain(n_features=1, classes=tags).score_shard(shard, shard.y, np.array(predicted, dtype=np.int32))
    return {name: sums[name] / sums.get(f"n:{name}", sums["n"]) for name in ("accuracy", "span_f1")}


def shards(data: Path) -> Iterator[tuple[Shard, tuple[str, ...]]]:
    dataset = open_dataset(Location(str(data)))
    for number in range(dataset.n_shards):
        yield dataset.read(number).shard, dataset.classes


def sequences(shard: Shard) -> Iterator[tuple[list[list[str]], slice]]:
    """Each sentence as a list of the feature numbers of each token, and where its tokens are."""
    assert shard.tokens is not None
    names = np.char.mod("%d", shard.x.indices)
    rows = np.split(names, shard.x.indptr[1:-1])
    for i in range(shard.n_examples):
        at = slice(int(shard.tokens[i]), int(shard.tokens[i + 1]))
        yield [row.tolist() for row in rows[at]], at


if __name__ == "__main__":
    main()
