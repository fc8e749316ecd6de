"""Certificates: proven bounds on P(w*), and their verification.

bounds   upper bounds from scans, and the conditions under which they are proven
rebuild  the support constraints of one shard, rebuilt from the data
verify   the certificate of a model folder, recomputed from the data set
"""
