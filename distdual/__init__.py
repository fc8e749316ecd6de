"""Linear and structural SVMs on data larger than one machine, with a certificate of optimality.

    primal   P(w) = 1/2 ||w||²  +  Σ_i C_i · max(0, max_j ( l_ij − ⟨w, x_ij⟩ ))
    dual     D(α) = Σ_k α_k l_k − 1/2 ||w||²      w = Σ_k α_k x_k,   α ≥ 0,   Σ_{k of i} α_k ≤ C_i
    always   D(α) ≤ P(w*) ≤ P(w)

Modules and packages, in the order in which data flows and imports go: errors, memory, schema, json_floats, interrupt,
field_docs, config, kernels, data, feature_maps, problems, data/prepare, scan, cluster, solver, expansion, model,
certificate, report, coordinator, jobs, problems/user/self_check, testing, estimators, quickstart, warm_up, cli,
distdual_check.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distdual.certificate.verify import Verification, verify
    from distdual.coordinator.calibrate import Calibrated, calibrate
    from distdual.coordinator.run import Result, train
    from distdual.coordinator.sweep_c import Sweep, sweep
    from distdual.data.prepare.api import prepare, prepare_arrays, prepare_frame, prepare_structures
    from distdual.estimators import (
        SVC,
        SVR,
        ChainSVM,
        GraphSVM,
        LatentSVM,
        LinearSVC,
        LinearSVR,
        MultivariateSVC,
        OrdinalSVC,
        StructuralSVM,
        SVMRank,
    )
    from distdual.jobs.submit import Job, submit
    from distdual.model.io import load_model
    from distdual.model.onnx_export import export_onnx
    from distdual.model.predict import Predictions, predict
    from distdual.problems.graph.problem import grid_graph
    from distdual.problems.user.latent import LatentUserProblem
    from distdual.problems.user.problem import UserProblem
    from distdual.problems.user.self_check import check_problem

__version__ = "0.2.0"
__all__ = [
    "SVC",
    "SVR",
    "Calibrated",
    "ChainSVM",
    "GraphSVM",
    "Job",
    "LatentSVM",
    "LatentUserProblem",
    "LinearSVC",
    "LinearSVR",
    "MultivariateSVC",
    "OrdinalSVC",
    "Predictions",
    "Result",
    "SVMRank",
    "StructuralSVM",
    "Sweep",
    "UserProblem",
    "Verification",
    "__version__",
    "calibrate",
    "check_problem",
    "export_onnx",
    "grid_graph",
    "load_model",
    "predict",
    "prepare",
    "prepare_arrays",
    "prepare_frame",
    "prepare_structures",
    "submit",
    "sweep",
    "train",
    "verify",
]

_HOME = {
    "prepare": "data.prepare.api",
    "prepare_arrays": "data.prepare.api",
    "prepare_frame": "data.prepare.api",
    "prepare_structures": "data.prepare.api",
    "Result": "coordinator.run",
    "train": "coordinator.run",
    "Verification": "certificate.verify",
    "verify": "certificate.verify",
    "load_model": "model.io",
    "Predictions": "model.predict",
    "predict": "model.predict",
    "export_onnx": "model.onnx_export",
    "Sweep": "coordinator.sweep_c",
    "sweep": "coordinator.sweep_c",
    "Calibrated": "coordinator.calibrate",
    "calibrate": "coordinator.calibrate",
    "Job": "jobs.submit",
    "submit": "jobs.submit",
    "UserProblem": "problems.user.problem",
    "grid_graph": "problems.graph.problem",
    "LatentUserProblem": "problems.user.latent",
    "check_problem": "problems.user.self_check",
    "SVC": "estimators",
    "SVR": "estimators",
    "ChainSVM": "estimators",
    "GraphSVM": "estimators",
    "LatentSVM": "estimators",
    "LinearSVC": "estimators",
    "LinearSVR": "estimators",
    "StructuralSVM": "estimators",
    "SVMRank": "estimators",
    "OrdinalSVC": "estimators",
    "MultivariateSVC": "estimators",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `distdual --help` does not load Numba and Zarr."""
    if name not in _HOME:
        raise AttributeError(f"module 'distdual' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"distdual.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """Names that are imported on first use, too."""
    return sorted({name for name in globals() if name.startswith("__")} | {*__all__})
