"""Problems that a user defines.

problem     a user's own problem
latent      a user's latent problem
time_limit  a time limit for a user's Python code
self_check  checks that a user's own problem keeps the contract, by brute force where possible
"""
