"""The cached problem of an exact kernel: examples, their kernel matrix, and ascent on the dual.

gram              the kernel matrix, within a limit of bytes
pair_ascent       Numba kernels: steps of two variables
class_ascent      Numba kernels: steps of an example's coefficients of all classes
cached_expansion  the examples, their coefficients and gradients
"""
