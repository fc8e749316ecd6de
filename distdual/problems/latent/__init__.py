"""Problems with latent values.

base        the contract of a problem with latent values
bags        binary classification of bags of candidates, of which one, unknown, makes a bag positive
multiclass  multiclass classification where each class is a mixture of m hidden components
chain       sequence tagging where each tag has m hidden sub-states
"""
