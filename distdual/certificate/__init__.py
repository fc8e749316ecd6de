"""Certificates: proven bounds on P(w*), and their verification.

bounds       upper bounds from scans, and the conditions under which they are proven
bias_search  the best free bias at given weights, from the kinks that shards report
rebuild      the support constraints of one shard, rebuilt from the data
check_shard  one shard's share of both bounds, recomputed on a worker
expansion_bounds  both bounds of an exact kernel, from the shards' shares
verify_expansion  the certificate of a model with an exact kernel, recomputed
findings     differences between a model folder and what was recomputed
verify       the certificate of a model folder, recomputed from the data set
"""
