"""`scripts/release` refuses a wrong tag before it builds anything."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")


@pytest.fixture
def checkout(tmp_path):
    """A folder with the files that the first step reads."""
    for name in ("scripts/release", "CHANGELOG.md", "src/doap/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def release(checkout, *arguments):
    command = ["bash", str(checkout / "scripts" / "release"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_tag_of_another_version_is_refused(checkout):
    done = release(checkout, "--tag", "v99.0.0")
    assert done.returncode == 1
    assert "got v99.0.0" in done.stderr


def test_a_changelog_of_another_version_is_refused(checkout):
    (checkout / "CHANGELOG.md").write_text("# Changelog\n\n## 99.0.0 (unreleased)\n")
    done = release(checkout)
    assert done.returncode == 1
    assert "got '## 99.0.0 (unreleased)'" in done.stderr


def test_unknown_options_are_refused(checkout):
    assert release(checkout, "--upload").returncode == 2
