"""Numba kernels that every other package uses.

compile_cache  where compiled kernels are kept, and the notice of their compilation
kernel_sources  the files that a kernel is made of
jit         the Numba decorators: the only place where Numba is configured
simd        arithmetic on four numbers at once
rows        the row formats, and the operations on one row that kernels share
rounding    bounds on the rounding of sums and products
row_sums    weighted sums of rows
row_copies  copies of rows that refer to a feature matrix, with or without their zeros
"""
