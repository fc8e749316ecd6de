"""CoNLL-2000 chunks: 211,727 tokens of text in columns, prepared with configs/chunking_templates.toml.

C = 0.1 was the best of 0.03, 0.1, 0.3 and 1 on five runs of training sentences, each held out in turn.
"""

import zipfile
from pathlib import Path

from benchmarks.case import Case, need
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare
from distdual.data.storage.location import Location
from distdual.problems.chain.problem import Chain

TEMPLATES = Path(__file__).parents[2] / "configs" / "chunking_templates.toml"


def chunks(folder: Path, scratch: Path) -> Case:
    with zipfile.ZipFile(need(folder, "nltk_conll2000", "conll2000.zip")) as packed:
        texts = [packed.extract(f"conll2000/{part}.txt", scratch) for part in ("train", "test")]
    train, test = (Location(str(scratch / "chunks" / part)) for part in ("train", "test"))
    told = {"shuffle": 0, "shard_bytes": 4 << 20, "overwrite": True}
    [made] = prepare(texts[0], train, "chain", templates=TEMPLATES, **told)
    prepare(texts[1], test, "chain", vocabulary=train, overwrite=True)
    return Case(
        name="conll",
        title="CoNLL-2000 chunks",
        problem=Chain(n_features=made.n_features, classes=open_dataset(train).classes),
        train=lambda: open_dataset(train),
        test=open_dataset(test),
        C=0.1,
        gaps=(1e-2,),
        options={"prune": "idle:2"},
    )
