"""Trained models: their folders, predictions and scores.

dual       the dual solution that proves a lower bound, and its files
calibration  probabilities from decision values
io         the model folder: writing and reading it
map_files      the feature map in a model folder
support_files  the support rows of an exact kernel
raw_rows   rows straight from files as features that a model knows
onnx_export  linear models with their preprocessing as ONNX graphs
pyfunc     models as MLflow loads them
predict    predictions and scores on a data set
cv_scores  scores on held-out folds, and the choice of C
"""
