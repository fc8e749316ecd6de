"""What estimators say while they train."""

import io
import re
from contextlib import redirect_stdout

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from scipy import sparse

import distdual
from distdual.errors import InputError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4))
Y = (X[:, 0] + RNG.normal(size=300) > 0).astype(int)


def test_a_silent_fit_prints_nothing(capfd):
    distdual.SVC().fit(X, Y)
    assert capfd.readouterr() == ("", "")


def test_verbose_prints_the_bounds_of_each_certified_pass():
    with redirect_stdout(io.StringIO()) as told:
        model = distdual.SVC(verbose=1).fit(X, Y)
    gaps = re.findall(r"gap=(\S+)", told.getvalue())
    assert float(gaps[-1]) == pytest.approx(model.certificate_["gap"], rel=0.01)


def test_a_notebook_shows_one_table_without_widgets():
    shell = InteractiveShell.instance()
    shell.display_formatter.active_types.append("text/html")
    try:
        with capture_output() as told:
            model = distdual.SVC(verbose=1).fit(X, Y)
    finally:
        InteractiveShell.clear_instance()
    pages = [output.data["text/html"] for output in told.outputs]
    assert "reading the first shards" in pages[0]
    assert f"{model.certificate_['gap']:.2e}" in pages[-1]
    assert "<script" not in "".join(pages)
    assert told.stdout == ""


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_badly_scaled_features_are_named(form):
    with pytest.warns(UserWarning, match=r"scales differ by \de\+0[56]: feature 2 reaches .*StandardScaler"):
        distdual.SVC(max_passes=500, C=1e-9).fit(form(X * [1, 1, 1e5, 1]), Y)


def test_a_column_of_zeros_is_no_scale():
    distdual.SVC().fit(np.column_stack([X, np.zeros(300)]), Y)


@pytest.mark.parametrize("value", [0, -1.0])
def test_a_wrong_C_is_named_as_the_parameter_is(value):
    with pytest.raises(InputError, match=r"^SVC: C must be positive"):
        distdual.SVC(C=value).fit(X, Y)


def test_dir_lists_what_is_imported_on_first_use():
    assert set(distdual.__all__) <= set(dir(distdual))
