"""Text in columns: CoNLL-2000 chunks (211,727 tokens) and universal parts of speech of English-EWT.

Prepared with the templates of configs/, as `distdual prepare` does it. C = 0.1 was the best of 0.03, 0.1, 0.3 and 1 on
training text that was held out in runs of sentences (chunks) and on the development file (parts of speech).
"""

import zipfile
from pathlib import Path

from benchmarks.case import Case, need
from distdual.data.location import Location
from distdual.data.prepare import prepare
from distdual.data.store import open_dataset
from distdual.problems.chain import Chain

CONFIGS = Path(__file__).parents[2] / "configs"


def text_case(name: str, title: str, train: Path, test: Path, templates: str, place: Path) -> Case:
    told = {"shuffle": 0, "shard_bytes": 4 << 20, "overwrite": True}
    [made] = prepare(train, place / "train", "chain", templates=CONFIGS / templates, **told)
    prepare(test, place / "test", "chain", vocabulary=place / "train", overwrite=True)
    places = [Location(str(place / part)) for part in ("train", "test")]
    return Case(
        name=name,
        title=title,
        problem=Chain(n_features=made.n_features, classes=open_dataset(places[0]).classes),
        train=lambda: open_dataset(places[0]),
        test=open_dataset(places[1]),
        C=0.1,
        gaps=(1e-2,),
        options={"prune": "idle:2"},
    )


def chunks(folder: Path, scratch: Path) -> Case:
    with zipfile.ZipFile(need(folder, "nltk_conll2000", "conll2000.zip")) as packed:
        train, test = (Path(packed.extract(f"conll2000/{part}.txt", scratch)) for part in ("train", "test"))
    return text_case("conll", "CoNLL-2000 chunks", train, test, "chunking_templates.toml", scratch / "chunks")


def upos(folder: Path, scratch: Path) -> Case:
    train, test = (need(folder, "ud_english_ewt", f"en_ewt-ud-{part}.conllu.xz") for part in ("train", "test"))
    return text_case("upos", "English-EWT parts of speech", train, test, "tagging_templates.toml", scratch / "upos")
