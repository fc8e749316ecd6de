"""Parsing with a weighted context-free grammar.

brackets          trees from bracketed text
grammar           the grammar: its symbols and rules, and trees encoded as a few whole numbers
treebank          data sets of trees
derivation        derivations, which are trees as numbers
cky               CKY: the best tree of a sentence, found exactly
second_best_tree  the best tree other than a given one
problem           parsing with a weighted context-free grammar
"""
