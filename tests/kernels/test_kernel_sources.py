"""Which files a change of which compiles kernels anew."""

from pathlib import Path

import distdual
from distdual.kernels.kernel_sources import digest_of, kernel_sources

PACKAGE = Path(distdual.__file__).parent


def small_package(folder: Path) -> Path:
    package = folder / "package"
    (package / "kernels").mkdir(parents=True)
    (package / "kernels" / "jit.py").write_text("")
    (package / "loops.py").write_text("from package.kernels.jit import kernel\nfrom package.sizes import MOST\n")
    (package / "sizes.py").write_text("MOST = 8\n")
    (package / "page.py").write_text("import package.loops\n")
    return package


def test_a_change_of_a_kernel_or_of_what_it_imports_counts_and_no_other(tmp_path):
    package = small_package(tmp_path)
    assert [path.name for path in kernel_sources(package)] == ["jit.py", "loops.py", "sizes.py"]
    before = digest_of(package)
    (package / "page.py").write_text("import package.loops  # changed\n")
    assert digest_of(package) == before
    (package / "sizes.py").write_text("MOST = 9\n")
    assert digest_of(package) != before


def test_every_file_that_decorates_a_function_counts():
    found = {path.relative_to(PACKAGE).as_posix() for path in kernel_sources(PACKAGE)}
    kernels = {
        path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "kernel\ndef " in path.read_text()
    }
    assert kernels <= found
    assert "report/page.py" not in found
