"""Scaling of features, with the standard deviations of columns found in one pass.

Nothing is centred, so that sparse rows stay sparse.
"""

import numpy as np
from numpy.typing import NDArray

from distdual.data.shard import Block
from distdual.errors import InputError
from distdual.kernels.jit import bare_kernel, kernel
from distdual.kernels.rows import CsrRows, DenseRows, Features, Floats, Ints, Singles


class ColumnSpread:
    """Mean and spread of the stored values of each column, in float64 by Welford's update.

    Zeros that sparse rows do not store are accounted for at the end: with m values stored out of n, of mean μ and
    sum of squared deviations S, the column's own sum of squared deviations is  S + μ² m (n − m) / n.
    """

    def __init__(self) -> None:
        self.n_examples = 0
        self.count: Ints = np.zeros(0, dtype=np.int64)
        self.mean: Floats = np.zeros(0)
        self.squares: Floats = np.zeros(0)

    def add(self, x: Features) -> None:
        self.n_examples += x.n_rows
        self._grow(x.n_columns)
        if isinstance(x, DenseRows):
            add_dense(x.values, self.count, self.mean, self.squares)
        else:
            add_sparse(x.indices, x.values, self.count, self.mean, self.squares)

    def factors(self) -> Floats:
        """What to divide each column by: its standard deviation, or 1 if it is constant."""
        zeros = self.n_examples - self.count
        squares = self.squares + self.mean**2 * self.count * zeros / max(1, self.n_examples)
        deviation = np.sqrt(squares / max(1, self.n_examples))
        return np.where(deviation > 0, deviation, 1.0)

    def _grow(self, width: int) -> None:
        old = len(self.count)
        if width > old:
            size = max(width, old + old // 4)  # few copies, little waste
            self.count, self.mean, self.squares = (
                np.concatenate([array, np.zeros(size - old, dtype=array.dtype)])
                for array in (self.count, self.mean, self.squares)
            )


def write_factors(factors: Floats) -> str:
    """A number a line, as many digits as it takes to read the same one back."""
    return "".join(f"{factor!r}\n" for factor in factors.tolist())


def read_factors(text: str) -> Floats:
    """The numbers that `write_factors` wrote."""
    try:
        factors = np.array([float(line) for line in text.splitlines()])
    except ValueError as error:
        raise InputError(f"the text of scaling factors holds no number: {error}") from None
    if not (np.isfinite(factors) & (factors > 0)).all():
        raise InputError("the text of scaling factors holds a number that is not positive and finite")
    return factors


def scale_columns(block: Block, factors: Floats, name: str) -> Block:
    """Divide each column; columns beyond `factors` were not seen in training and stay as they are."""
    x = block.x
    if isinstance(x, DenseRows):
        scaled: Features = DenseRows(divide(x.values, factors[: x.values.shape[1]]))
    else:
        scaled = x._replace(values=np.empty_like(x.values))
        divide_stored(x.indices, x.values, factors, scaled.values)
    if not np.isfinite(scaled.values).all():
        raise InputError(f"{name}: a feature is too large for float32 once its column has unit variance")
    return block._replace(x=scaled)


def scale_rows(block: Block) -> Block:
    """Divide each row by its Euclidean norm; a row of zeros stays as it is."""
    x = block.x
    if isinstance(x, DenseRows):
        norm = np.sqrt(np.einsum("ij,ij->i", x.values, x.values, dtype=np.float64))
        return block._replace(x=DenseRows(divide(x.values, np.where(norm > 0, norm, 1.0)[:, None])))
    row = np.repeat(np.arange(x.n_rows), np.diff(x.indptr))
    norm = np.sqrt(np.bincount(row, x.values.astype(np.float64) ** 2, minlength=x.n_rows))
    by = np.where(norm > 0, norm, 1.0)[row]
    return block._replace(x=CsrRows(x.indptr, x.indices, divide(x.values, by)))


def divide(values: Singles, by: Floats) -> Singles:
    with np.errstate(over="ignore"):
        scaled: Singles = (values / by).astype(np.float32)
    return scaled


@bare_kernel
def divide_stored(indices: NDArray[np.int32], values: Singles, factors: Floats, out: Singles) -> None:
    """Fill `out` with each stored value divided by the factor of its column; columns beyond them have none."""
    for k in range(len(values)):
        out[k] = values[k] / factors[indices[k]] if indices[k] < len(factors) else values[k]


@kernel
def add_dense(values: Singles, count: Ints, mean: Floats, squares: Floats) -> None:
    """Welford's update of count, mean and squares, in place, by every entry of a matrix.

    d = v − μ,   μ ← μ + d / n,   S ← S + d (v − μ)
    """
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            value = float(values[i, j])
            count[j] += 1
            away = value - mean[j]
            mean[j] += away / count[j]
            squares[j] += away * (value - mean[j])


@kernel
def add_sparse(indices: NDArray[np.int32], values: Singles, count: Ints, mean: Floats, squares: Floats) -> None:
    """The same by every stored value. The caller guarantees that the arrays reach the largest index."""
    for k in range(len(values)):
        j = indices[k]
        value = float(values[k])
        count[j] += 1
        away = value - mean[j]
        mean[j] += away / count[j]
        squares[j] += away * (value - mean[j])
