"""Which files a change of which compiles a kernel anew."""

from pathlib import Path

from distdual.kernels.jit import PACKAGE
from distdual.kernels.kernel_sources import digest_of, imported_sources, kernel_sources


def small_package(folder: Path) -> Path:
    package = folder / "package"
    (package / "kernels").mkdir(parents=True)
    (package / "kernels" / "jit.py").write_text("")
    (package / "loops.py").write_text("from package.kernels.jit import kernel\nfrom package.sizes import MOST\n")
    (package / "sizes.py").write_text("MOST = 8\n")
    (package / "formats.py").write_text("from package.kernels.jit import specialise\n\n@specialise(dot)\n")
    (package / "others.py").write_text("from package.kernels.jit import kernel\n")
    return package


def change(file: Path, text: str) -> None:
    file.write_text(text)
    imported_sources.cache_clear()


def test_a_change_of_what_a_kernel_imports_or_of_a_specialisation_counts_and_no_other(tmp_path):
    package = small_package(tmp_path)
    found = [path.name for path in kernel_sources(package, "package.loops")]
    assert found == ["formats.py", "jit.py", "loops.py", "sizes.py"]
    before = digest_of(package, "package.loops")
    change(package / "others.py", "from package.kernels.jit import kernel  # changed\n")
    assert digest_of(package, "package.loops") == before
    change(package / "sizes.py", "MOST = 9\n")
    after = digest_of(package, "package.loops")
    assert after != before
    change(package / "formats.py", "@specialise(dot)  # changed\n")
    assert digest_of(package, "package.loops") != after


def test_a_module_outside_the_package_counts_every_file(tmp_path):
    package = small_package(tmp_path)
    assert len(kernel_sources(package, "own")) == 5


def test_kernels_of_one_problem_are_not_compiled_anew_for_another():
    found = {path.relative_to(PACKAGE).as_posix() for path in kernel_sources(PACKAGE, "distdual.problems.binary")}
    assert {"problems/binary.py", "kernels/rows.py", "kernels/jit.py"} <= found
    assert not {"problems/parsing/cky.py", "solver/sweep.py", "report/page.py"} & found
