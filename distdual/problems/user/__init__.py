"""Problems that a user defines.

problem     a user's own problem
latent      a user's latent problem
self_check  checks that a user's own problem keeps the contract, by brute force where possible
"""
