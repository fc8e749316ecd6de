"""Penn Treebank sample: sentences of up to 15 words, a random 80 % of them for training; Markov order 2.

C is the best of 0.3, 1, 3, 10, 30 on a fifth of the training trees.
"""

from pathlib import Path

from benchmarks.case import Case, need
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare
from distdual.data.storage.location import Location
from distdual.problems.registry import make_problem

MAX_LENGTH = 15


def trees(folder: Path, scratch: Path, loss: str, C: float) -> Case:
    place = scratch / "trees"
    bank = need(folder, "nltk_treebank", "treebank_clean.mrg.xz")
    prepare(bank, place, "cfg", max_length=MAX_LENGTH, test_fraction=0.2, shuffle=0, overwrite=True)
    train, test = (open_dataset(Location(str(place / part))) for part in ("train", "test"))
    return Case(
        name=f"treebank-{loss}",
        title=f"Penn Treebank sample, {loss} loss, C = {C:g}",
        problem=make_problem(
            "cfg", {"loss": loss}, n_features=train.n_features, classes=train.classes, texts=train.texts
        ),
        train=lambda: open_dataset(train.location),
        test=test,
        C=C,
        gaps=(1e-2,),
    )


def treebank(folder: Path, scratch: Path) -> Case:
    return trees(folder, scratch, "span", 1.0)


def treebank_whole(folder: Path, scratch: Path) -> Case:
    return trees(folder, scratch, "zero-one", 3.0)
