"""Losses over a whole data set with two classes.

whole_losses  the offender of each loss, from the scores of all examples
problem       the learning problem
"""
