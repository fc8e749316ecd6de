"""Ranking of documents within queries.

swapped_pairs  which pairs of documents a constraint swaps, and their sums, by sorting
measures       NDCG, MAP, MRR and the accuracy over pairs
problem        the learning problem
"""
