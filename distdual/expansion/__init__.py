"""The cached problem of an exact kernel: examples, their kernel matrix, and ascent on the dual.

gram              the kernel matrix, within a limit of bytes
pair_ascent       Numba kernels: steps of two variables
cached_expansion  the examples with b = y α and its gradient
"""
