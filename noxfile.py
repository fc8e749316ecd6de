"""The fast tests on other versions of Python and of the dependencies, and the package as it is installed.

nox -s lowest     the lowest versions that pyproject.toml admits
nox -s tests      what pip chooses, on each Python
nox -s newest     the newest versions, releases before the final one included
nox -s wheel      the wheel in a fresh environment outside the checkout

`.ci/matrix` runs all of them. Pythons that are missing are skipped with a warning.
"""

from pathlib import Path

import nox

nox.options.default_venv_backend = "uv"
nox.options.error_on_missing_interpreters = False

PYTHONS = ("3.11", "3.12", "3.13")
TESTS = ("pytest", "-n", "2", "--dist", "loadfile", "-q")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The fast tests; arguments after -- go to pytest."""
    session.install("pip", "-e", ".[test]")
    session.run(*TESTS, *session.posargs)


@nox.session(python=PYTHONS[0])
def lowest(session: nox.Session) -> None:
    """The same with the lowest versions of direct dependencies."""
    session.install("--resolution", "lowest-direct", "pip>=24", "-e", ".[test]")
    session.run(*TESTS, *session.posargs)


@nox.session(python=PYTHONS[-1])
def newest(session: nox.Session) -> None:
    """The same with the newest versions."""
    session.install("--upgrade", "--prerelease", "allow", "pip", "-e", ".[test]")
    session.run(*TESTS, *session.posargs)


@nox.session(python=PYTHONS[0])
def wheel(session: nox.Session) -> None:
    """Build wheel and sdist, check them, and follow the README's first path from the installed wheel."""
    built = Path(session.create_tmp()).resolve() / "dist"
    session.install("build", "twine", "uv")
    session.run("python", "-m", "build", "--installer", "uv", "--outdir", str(built))
    files = sorted(map(str, built.iterdir()))
    session.run("twine", "check", "--strict", *files)
    session.run("uv", "pip", "install", "--reinstall-package", "distdual", next(f for f in files if f.endswith(".whl")))
    with session.chdir(built.parent):
        session.run("distdual", "quickstart", "--dir", "first")
        session.run("distdual", "verify", "first/model")
        session.run("distdual", "example", "binary", "--dir", "examples")
        session.run("python", "-c", "import distdual; print(distdual.__file__)")
