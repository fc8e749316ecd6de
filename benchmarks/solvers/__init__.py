"""Every peer by its name."""

from benchmarks.solvers.base import Peer
from benchmarks.solvers.counting import Counting
from benchmarks.solvers.crfsuite import Crfsuite, Perceptron
from benchmarks.solvers.dask_ml import DaskIncremental
from benchmarks.solvers.liblinear import Liblinear
from benchmarks.solvers.lightning import Lightning
from benchmarks.solvers.linear_svc import LinearSVC
from benchmarks.solvers.linear_svr import LinearSVR
from benchmarks.solvers.sgd import Sgd
from benchmarks.solvers.snap import SnapMl
from benchmarks.solvers.spark import Spark
from benchmarks.solvers.structural_dlib import Dlib

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        LinearSVC(),
        SnapMl(),
        Liblinear(),
        Lightning(),
        Sgd(),
        DaskIncremental(),
        Spark(),
        LinearSVR(),
        Crfsuite(),
        Perceptron(),
        Dlib(),
        Counting(),
    )
}


def peers_for(kind: str) -> list[Peer]:
    return [peer for peer in PEERS.values() if kind in peer.kinds]
