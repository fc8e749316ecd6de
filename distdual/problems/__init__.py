"""Learning problems: one file or folder each.

base             the contract of a learning problem: the inner max of P(w)
constraint_hash  a 64-bit hash of each constraint, by which equal ones are recognised
linear           what problems share whose examples are single feature vectors
wrapping         a problem made of another one, which answers for it
mapped           a problem on mapped features
free_bias        the loss along a free bias
binary           binary classification: one constraint an example
multivariate/    losses over the whole data set, for two classes
multiclass       multiclass classification (Crammer-Singer)
regression       ε-insensitive regression: ξ_i = max(0, |target_i − ⟨w, x_i⟩| − ε)
expansion_form   a row of coefficients for each example, as an exact kernel needs it
expanded         a problem with an exact kernel
ordinal          ordinal regression: a score, and thresholds between classes that are in order
ranking/         ranking of documents within queries
chain/           sequence tagging by a linear chain
parsing/         parsing with a weighted context-free grammar
latent/          problems with latent values
user/            problems that a user defines
registry         the registry of problems
"""
