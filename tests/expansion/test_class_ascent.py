import numpy as np
import pytest

from distdual.expansion.class_ascent import ascend_classes, project
from tests import naive

DRAW = np.random.default_rng(3)


@pytest.mark.parametrize("run", [project, project.py_func], ids=["compiled", "python"])
@pytest.mark.parametrize("most", [0.0, 0.3, 50.0])
def test_the_projection_is_the_nearest_feasible_point(run, most):
    for n_classes in (2, 3, 7):
        for _ in range(20):
            aim = DRAW.normal(size=n_classes) * 2.0
            found = aim.copy()
            run(found, 1, most)
            limit = np.where(np.arange(n_classes) == 1, most, 0.0)
            assert (found <= limit + 1e-12).all()
            assert abs(found.sum()) < 1e-9
            # optimal: aim − found is the same for all below their limit, and no smaller for those at it
            off, free = aim - found, found < limit - 1e-12
            if free.any():
                np.testing.assert_allclose(off[free], off[free].mean(), atol=1e-9)
                assert (off[~free] >= off[free].mean() - 1e-9).all()


@pytest.mark.parametrize("run", [ascend_classes, ascend_classes.py_func], ids=["compiled", "python"])
@pytest.mark.parametrize("scale", [0.05, 1.0, 20.0], ids=["all at their bound", "mixed", "hardly bounded"])
def test_the_ascent_ends_at_the_optimum_that_a_qp_solver_finds(run, scale):
    n, n_classes = 10, 3
    features = DRAW.normal(size=(n, 4))
    kernel = features @ features.T + 1e-2 * np.eye(n)
    whole = np.linalg.cholesky(kernel)
    label = DRAW.integers(n_classes, size=n).astype(np.int32)
    most = scale * (0.1 + DRAW.random(n))
    loss = (1.0 - np.eye(n_classes))[label]
    b, h = np.zeros((n, n_classes)), -loss.copy()

    last = 0.0
    for _ in range(12):
        run(kernel, b, h, label, most, np.diag(kernel).copy(), np.empty(n_classes), 300)
        now = float((-loss * b).sum() - 0.5 * np.einsum("ic,ij,jc", b, kernel, b))
        assert now >= last - 1e-12
        last = now

    wrong = [(i, c) for i in range(n) for c in range(n_classes) if c != label[i]]
    unit = np.eye(n_classes)
    rows = np.array([np.kron(unit[label[i]] - unit[c], whole[i]) for i, c in wrong])
    same = naive.Program(rows, np.ones(len(wrong)), np.array([i for i, _ in wrong]), most)
    best = naive.optimum(same)
    assert last == pytest.approx(best.upper, rel=1e-4)
    assert last <= best.upper * (1 + 1e-9)
    np.testing.assert_allclose(b.sum(axis=1), 0.0, atol=1e-9)
    np.testing.assert_allclose(h, -loss - kernel @ b, atol=1e-9)
