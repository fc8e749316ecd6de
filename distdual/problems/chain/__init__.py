"""Sequence tagging by a linear chain.

viterbi    Viterbi
path_rows  the row and the loss of a right and a wrong path through a linear chain
span_f1    labelled spans in tags such as B-NP, I-NP and O
problem    sequence tagging by a linear chain
"""
