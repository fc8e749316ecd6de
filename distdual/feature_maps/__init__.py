"""Features whose inner products are a kernel k(x, z), or come close to it; not to be confused with Numba's kernels.

blas             matrix products whose bits do not depend on the number of threads
kernel_function  k(x, z): rbf, polynomial, laplacian, sigmoid
kernel_sums      Σ β_j k(x, s_j) over support rows, with a bound on rounding
feature_map      the contract: raw rows to mapped rows, in blocks
nystroem         the map onto landmarks, by a Cholesky factor of their kernel matrix
fourier          random Fourier features
landmarks        rows drawn from a data set, by seed, in one pass
make_map         a map made of rows that were drawn for it
quality          how well a map reproduces its kernel on a sample
"""
