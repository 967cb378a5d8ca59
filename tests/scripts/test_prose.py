"""`scripts/prose` reports banned phrases, long functions and wide Markdown lines, and accepts clean files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "prose"
CLEAN = '"""Return the frames of the detected keypoints."""\n\n\ndef frames() -> None:\n    """Do nothing."""\n'


def prose(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--root", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for folder in ("src", "docs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "src" / "module.py").write_text(CLEAN)
    (tmp_path / "docs" / "page.md").write_text("# Matching\n\nMatch two images.\n")
    return tmp_path


def test_clean_files_are_accepted(checkout: Path) -> None:
    done = prose(checkout)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("source", "line", "phrase"),
    [
        ('"""Return the frames.\n\nDamaged files are told.\n"""\n', 3, "told"),
        ("x = 1\n\n# Compute it\n# anew.\n", 4, "anew"),
        ("x = 1  # The file at\n# hand.\n", 1, "at hand"),
        ('raise ValueError(f"{1}: expected numbers, got others")\n', 1, "got others"),
        ('option = Option(help="Photos of one place.")\n', 1, "place"),
        ("told_once = 1\n", 1, "told"),
        ("from doap.pages import page\n", 1, "doap.pages"),
    ],
    ids=["docstring", "comment", "wrapped comment", "error message", "help text", "name", "module"],
)
def test_a_banned_phrase_in_python_is_reported(checkout: Path, source: str, line: int, phrase: str) -> None:
    (checkout / "src" / "module.py").write_text(source)
    done = prose(checkout)
    assert done.returncode == 1
    assert done.stdout.startswith(f"src/module.py:{line}: '{phrase}' → use ")
    assert done.stdout.count("\n") == 1


def test_a_banned_phrase_in_markdown_is_reported_across_a_line_break(checkout: Path) -> None:
    (checkout / "README.md").write_text("# doap\n\nAll weights in\nuse are listed.\n")
    assert prose(checkout).stdout == "README.md:3: 'in use' → use deployed\n"


def test_exceptions_of_a_phrase_are_accepted(checkout: Path) -> None:
    (checkout / "README.md").write_text("Sort the array in place. The ledger has a column `place`.\n")
    assert prose(checkout).returncode == 0


@pytest.mark.parametrize(("lines", "code"), [(60, 0), (61, 1)])
def test_functions_have_at_most_60_lines(checkout: Path, lines: int, code: int) -> None:
    (checkout / "src" / "module.py").write_text("@decorate\ndef long() -> None:\n" + "    pass\n" * (lines - 1))
    assert prose(checkout).returncode == code


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("w" * 120, 0),
        ("w" * 121, 1),
        ("| " + "w" * 121, 0),
        ("[target](" + "w" * 121 + ")", 0),
        ("```\n" + "w" * 121 + "\n```", 0),
        ("```\ncode\n```\n" + "w" * 121, 1),
    ],
    ids=["120", "121", "table", "link", "code", "after code"],
)
def test_markdown_lines_have_at_most_120_characters(checkout: Path, line: str, code: int) -> None:
    (checkout / "docs" / "page.md").write_text(f"# Matching\n\n{line}\n")
    assert prose(checkout).returncode == code


def test_counts_are_given_by_phrase_and_folder(checkout: Path) -> None:
    (checkout / "docs" / "page.md").write_text("Build it anew, and anew.\n")
    (checkout / "src" / "module.py").write_text("# Build it anew.\n")
    done = prose(checkout, "--count")
    assert done.returncode == 0
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert rows["phrase"] == ["src", "docs", "README.md", "allowed"]
    assert rows["anew"] == rows["total"] == ["1", "2", "0", "0"]
