"""Training and prediction as scikit-learn estimators.

inputs (what may be handed in), base (what all share); linear (what the next three share), classifier (SVC), regressor
(SVR), latent (LatentSVM); structured (what the next two share), chain (ChainSVM), own (StructuralSVM).
"""

from distdual.estimators.chain import ChainSVM
from distdual.estimators.classifier import SVC
from distdual.estimators.latent import LatentSVM
from distdual.estimators.regressor import SVR
from distdual.estimators.structural import StructuralSVM

__all__ = ["SVC", "SVR", "ChainSVM", "LatentSVM", "StructuralSVM"]
