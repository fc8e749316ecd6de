"""Pairwise graphs: a label for each node, with features of nodes and of edges.

problem      the problem: features, loss, and the choice of inference
max_product  exact inference on forests
max_flow     a maximum flow and a minimum cut
minimum_cut  exact inference for two labels that attract each other
relaxation   labels and an upper bound for every other graph
"""
