"""scikit-learn estimators.

inputs: arrays, sparse matrices, Dask arrays and data sets as input.
collections: Dask arrays and data frames, trained on where they are.
feature_scales: the warning about badly scaled features.
model_folder: estimators from model folders, and back.
evaluation: scores on an eval_set while an estimator is fitted.
raw_rows: raw rows as features, for estimators of data sets.
base: solver parameters, fit and partial_fit, for all estimators.
linear: scores of single rows, coef_ and intercept_, for most.
classifier: SVC.
regressor: SVR.
drop_in: LinearSVC and LinearSVR.
ordinal: OrdinalSVC.
multivariate: MultivariateSVC.
onnx_converter: converters for skl2onnx.
latent: LatentSVM.
structured_base: prediction and scores by the problem itself, for the next three.
ranking: SVMRank.
chain: ChainSVM.
structural: StructuralSVM.
graph: GraphSVM.
"""

from distdual.estimators.chain import ChainSVM
from distdual.estimators.classifier import SVC
from distdual.estimators.drop_in import LinearSVC, LinearSVR
from distdual.estimators.graph import GraphSVM
from distdual.estimators.latent import LatentSVM
from distdual.estimators.multivariate import MultivariateSVC
from distdual.estimators.ordinal import OrdinalSVC
from distdual.estimators.ranking import SVMRank
from distdual.estimators.regressor import SVR
from distdual.estimators.structural import StructuralSVM

__all__ = [
    "SVC",
    "SVR",
    "ChainSVM",
    "GraphSVM",
    "LatentSVM",
    "LinearSVC",
    "LinearSVR",
    "MultivariateSVC",
    "OrdinalSVC",
    "SVMRank",
    "StructuralSVM",
]
