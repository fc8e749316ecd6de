"""Low-rank kernels on MNIST's ten classes: test error and seconds by the size of the basis, and beside scikit-learn.

    python -m benchmarks.low_rank DATA_FOLDER [--basis 100,…] [--choose] [--peer BASIS] [--peer-c C] …

Pixels are divided by 255. γ and C are chosen on 10,000 of the training images with a basis of 500 (--choose; else they
are what it chose). Each basis is then trained on all 60,000 images; the time is that of `SVC.fit`, from arrays to a
certified gap of 1e-2, with the drawing of landmarks and the map. The peer is scikit-learn's Nystroem + LinearSVC, at
its default tolerance of 1e-4, with the same kernel and basis, both timed in turn in one process. Its loss is another
one, squared and one class against the rest, so that its C is chosen on the same images (--choose with --peer).
"""

import os

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "2"))  # before NumPy: the same for both

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import distdual
from benchmarks.case import need

GAP = 1e-2
CHOSEN = {"gamma": 0.02, "C": 16.0}
PEER_C = 16.0
GAMMAS, CS = (0.01, 0.02, 0.03), (1.0, 4.0, 16.0, 64.0)
PEER_CS = (0.25, 1.0, 4.0, 16.0)
CHOOSING = 500  # basis
HELD_OUT = 10_000


Fit = Callable[..., dict[str, Any]]


class Images(NamedTuple):
    x: Any
    y: Any

    def take(self, which: Any) -> "Images":
        return Images(self.x[which], self.y[which])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, metavar="DATA_FOLDER")
    arguments.add_argument("--basis", default="125,250,500,1000,2000,4000")
    arguments.add_argument("--choose", action="store_true", help="choose γ and C again")
    arguments.add_argument("--peer", type=int, metavar="BASIS", help="time scikit-learn's Nystroem + LinearSVC, too")
    arguments.add_argument("--peer-c", type=float, default=PEER_C, help="C of the peer, unless it is chosen")
    arguments.add_argument("--repeat", type=int, default=3, help="of the comparison with the peer")
    arguments.add_argument("--plot", type=Path, metavar="FILE")
    told = arguments.parse_args()
    train, test = images(told.folder)
    warm_up(train)
    chosen = choose(train, ours, GAMMAS, CS) if told.choose and not told.peer else CHOSEN
    peer_chosen = {"gamma": chosen["gamma"], "C": told.peer_c}
    if told.choose and told.peer:
        peer_chosen = choose(train, peer, (chosen["gamma"],), PEER_CS)
    rows = [ours(train, test, int(basis), **chosen) for basis in told.basis.split(",") if basis]
    if told.peer:
        print(json.dumps(compare(train, test, told.peer, told.repeat, chosen, peer_chosen)), flush=True)
    if told.plot:
        plot(rows, told.plot)


def images(folder: Path) -> tuple[Images, Images]:
    found = np.load(need(folder / "mnist" / "mnist.npz"))

    def part(name: str) -> Images:
        x = found[f"X_{name}"].reshape(-1, 784).astype(np.float32) / np.float32(255)
        return Images(x, found[f"y_{name}"].astype(np.int64))

    return part("train"), part("test")


def warm_up(train: Images) -> None:
    """Compile kernels."""
    distdual.SVC(kernel="rbf", gamma=0.02, n_components=20, gap=0.1).fit(*train.take(slice(1000)))


def choose(train: Images, fit: Fit, gammas: tuple[float, ...], cs: tuple[float, ...]) -> dict[str, float]:
    """γ and C with the smallest error on images that were held out."""
    order = np.random.default_rng(0).permutation(len(train.y))
    held, rest = train.take(order[:HELD_OUT]), train.take(order[HELD_OUT:])
    errors = {}
    for gamma in gammas:
        for C in cs:
            errors[gamma, C] = fit(rest, held, CHOOSING, gamma=gamma, C=C)["error"]
    gamma, C = min(errors, key=lambda pair: errors[pair])
    print(json.dumps({"chosen": {"gamma": gamma, "C": C}}), flush=True)
    return {"gamma": gamma, "C": C}


def ours(train: Images, test: Images, basis: int, gamma: float, C: float) -> dict[str, Any]:
    begin = time.perf_counter()
    model = distdual.SVC(C=C, kernel="rbf", gamma=gamma, n_components=basis, gap=GAP).fit(*train)
    seconds = time.perf_counter() - begin
    found = {
        "basis": basis,
        "gamma": gamma,
        "C": C,
        "error": round(1 - model.score(*test), 4),
        "seconds": round(seconds, 2),
        "gap": model.certificate_["gap"],
        "passes": model.n_iter_,
        "map_error": model.certificate_["kernel"]["relative_error"],
    }
    print(json.dumps(found), flush=True)
    return found


def peer(train: Images, test: Images, basis: int, gamma: float, C: float) -> dict[str, Any]:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    begin = time.perf_counter()
    made = make_pipeline(Nystroem(gamma=gamma, n_components=basis, random_state=0), LinearSVC(C=C)).fit(*train)
    seconds = time.perf_counter() - begin
    found = {
        "peer": "Nystroem + LinearSVC",
        "basis": basis,
        "gamma": gamma,
        "C": C,
        "error": round(1 - made.score(*test), 4),
        "seconds": round(seconds, 2),
    }
    print(json.dumps(found), flush=True)
    return found


def compare(
    train: Images, test: Images, basis: int, repeat: int, mine_at: dict[str, float], peer_at: dict[str, float]
) -> dict[str, float]:
    """Medians of both, in turn."""
    pairs = [
        (ours(train, test, basis, **mine_at)["seconds"], peer(train, test, basis, **peer_at)["seconds"])
        for _ in range(repeat)
    ]
    mine, theirs = (median(seconds) for seconds in zip(*pairs, strict=True))
    return {"basis": basis, "distdual": mine, "scikit-learn": theirs, "ratio": round(mine / theirs, 3)}


def plot(rows: list[dict[str, Any]], file: Path) -> None:
    """Error and seconds by basis."""
    import matplotlib as mpl

    from distdual.report.plots import new_figure

    figure = new_figure(7, 4)
    error = figure.subplots()
    basis = [row["basis"] for row in rows]
    error.plot(basis, [100 * row["error"] for row in rows], "o-", color="black", label="test error")
    error.set(xscale="log", xlabel="landmarks", ylabel="test error, %", xticks=basis, xticklabels=basis, ylim=(0, None))
    error.minorticks_off()
    seconds = error.twinx()
    seconds.plot(basis, [row["seconds"] for row in rows], "s--", color="tab:blue", label="seconds")
    seconds.set(yscale="log", ylabel="seconds to a certified gap of 1e-2")
    figure.legend(loc="upper center", ncols=2)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "low_rank"}):  # text stays text, and no random ids
        figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    main()
