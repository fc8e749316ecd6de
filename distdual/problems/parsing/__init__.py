"""Parsing with a weighted context-free grammar.

brackets          trees from bracketed text
grammar           the grammar: its symbols and rules, and trees encoded as a few whole numbers
treebank          data sets of trees
derivation        derivations, which are trees as numbers
span_features     features of labelled spans: length, and the words at the ends
tree_rows         the row of a right and a wrong tree
cky               CKY: the best tree of a sentence, found exactly
second_best_tree  the best tree other than a given one
tree_search       the oracle: the worst and the best trees of a shard's sentences
problem           parsing with a weighted context-free grammar
"""
