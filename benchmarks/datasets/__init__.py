"""Every case by its name, made from the folder of benchmark data and a scratch folder. No data is in this project."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.case import Case
from benchmarks.datasets.a9a import a9a
from benchmarks.datasets.conll import chunks
from benchmarks.datasets.covtype import covtype, covtype7
from benchmarks.datasets.housing import housing
from benchmarks.datasets.imdb import imdb
from benchmarks.datasets.mnist import mnist, mnist10, mnist10_at_1
from benchmarks.datasets.ocr import ocr
from benchmarks.datasets.synthetic import tiny_binary, tiny_chain, tiny_multiclass, tiny_regression
from benchmarks.datasets.treebank import treebank, treebank_whole

CASES: dict[str, Callable[[Path, Path], Case]] = {
    "covtype": covtype,
    "mnist": mnist,
    "a9a": a9a,
    "imdb": imdb,
    "mnist10-0.01": mnist10,
    "mnist10-1": mnist10_at_1,
    "covtype7": covtype7,
    "housing": housing,
    "ocr": ocr,
    "conll": chunks,
    "treebank-span": treebank,
    "treebank-zero-one": treebank_whole,
    "tiny": tiny_binary,
    "tiny3": tiny_multiclass,
    "line": tiny_regression,
    "links": tiny_chain,
}
TINY = {"binary": "tiny", "multiclass": "tiny3", "regression": "line", "chain": "links"}
