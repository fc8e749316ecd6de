"""Sequence tagging by a linear chain.

viterbi         Viterbi
slack_rescaled  Viterbi with slack rescaling
k_best          the K best paths
path_rows       the row and the loss of a right and a wrong path through a linear chain
forbidden       pairs of tags that no path may have
span_f1         labelled spans in tags such as B-NP, I-NP and O
problem         sequence tagging by a linear chain
"""
