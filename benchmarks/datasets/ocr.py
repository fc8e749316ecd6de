"""OCR letters: 6,251 words, 26 letters, 128 pixels; fold 0 is for testing. No weights for the first and last letter."""

from pathlib import Path

import numpy as np

from benchmarks.case import Case, need
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location
from distdual.problems.chain.problem import Chain

TEST_FOLD = 0


def ocr(folder: Path, scratch: Path) -> Case:
    packed = np.load(need(folder, "ocr_letters", "letters.npz"))
    x = np.unpackbits(packed["X_packed"], axis=1).astype(np.float32)
    y = np.array([chr(ord("a") + code) for code in packed["y"]])
    lengths, testing = np.diff(packed["offsets"]), packed["fold"] == TEST_FOLD
    place = scratch / "ocr"
    for name, words, options in (
        ("train", ~testing, {"shuffle": 0, "shard_bytes": 4 << 20}),
        ("test", testing, {}),
    ):
        letters = np.repeat(words, lengths)
        told = {"lengths": lengths[words], "overwrite": True, **options}
        prepare_arrays(x[letters], y[letters], place / name, "chain", **told)
    train, test = (Location(str(place / name)) for name in ("train", "test"))
    return Case(
        name="ocr",
        title="OCR letters",
        problem=Chain(n_features=128, classes=open_dataset(train).classes, boundaries=False),
        train=lambda: open_dataset(train),
        test=open_dataset(test),
        C=0.1,
        gaps=(1e-2, 1e-3),
    )
