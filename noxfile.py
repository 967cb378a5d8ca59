"""Developer sessions. Each one installs the project and runs a script of `scripts/`; CI runs the same scripts.

    nox -s quick               quick tests on one Python
    nox -s quick-3.12          … on another one
    nox -s check quick         static checks and quick tests, the sessions that run by default
    nox --no-venv -s quick     use the packages of the current environment

Arguments after `--` go to the script: `nox -s tests-3.11 -- tests/loss -x`.
"""

from __future__ import annotations

import nox

# The pinned versions of constraints.txt need this Python or a newer one.
PINNED = "3.11"
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
nox.options.sessions = ["check", f"quick-{PINNED}"]
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"


def install(session: nox.Session, extras: str) -> None:
    """Install the project with the tested versions of its dependencies, or the newest ones on an older Python."""
    if session.virtualenv.venv_backend == "none":
        return
    constraints = [] if session.python == "3.10" else ["-c", "constraints.txt"]
    session.install(*constraints, "-e", f".[{extras}]")


@nox.session(python=PINNED)
def check(session: nox.Session) -> None:
    """Run formatter, linter, type checker, import layers, spelling and phrases."""
    install(session, "all,dev")
    session.run("scripts/check", external=True)


@nox.session(python=PYTHONS)
def quick(session: nox.Session) -> None:
    """Run the quick tests."""
    install(session, "all,dev")
    session.run("scripts/test", "--quick", *session.posargs, external=True)


@nox.session(python=PINNED)
def coverage(session: nox.Session) -> None:
    """Run the quick tests with branch coverage; fails below the floor in pyproject.toml."""
    install(session, "all,dev")
    session.run("scripts/test", "--coverage", *session.posargs, external=True)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run all tests."""
    install(session, "all,dev,docs")
    session.run("scripts/test", *session.posargs, external=True)


@nox.session(python=PINNED)
def docs(session: nox.Session) -> None:
    """Build the documentation site."""
    install(session, "all,docs")
    session.run("scripts/docs", *session.posargs, external=True)


@nox.session(python=PINNED)
def wheel(session: nox.Session) -> None:
    """Build sdist and wheel, and match two images with the installed wheel."""
    session.run("scripts/wheel", *session.posargs, external=True)
