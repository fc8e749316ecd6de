"""Problems that a user defines.

problem     a user's own problem
latent      a user's latent problem
cases       the examples of a shard as a user's code sees them
rows        rows from what feature maps return, for many examples at once
oracle      the scan: argmax for each example, with as little around it as can be
probe       a look, once a scan, whether argmax misses a better output
time_limit  a time limit for a user's Python code
checks      what a user's own problem must keep to
self_check  runs these checks, by brute force where possible
"""
