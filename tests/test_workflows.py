"""Workflows have minimal permissions and pinned actions, and run only scripts that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="workflows are only in the repository")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_hash_and_name_their_version(path):
    used = re.findall(r"uses: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action) for action in used)


def test_an_action_has_the_same_hash_in_all_workflows():
    text = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    pins = set(re.findall(r"uses: (\S+)@(\S+)", text))
    assert len(pins) == len({name for name, _ in pins})


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_only_reads_unless_a_job_states_more(path):
    text = path.read_text(encoding="utf-8")
    assert "\npermissions:\n  contents: read\n" in text
    granted = set(re.findall(r"^ {6}([\w-]+): write$", text, re.MULTILINE))
    assert granted <= ({"id-token", "attestations"} if path.name == "release.yml" else set())
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_files_that_exist(path):
    named = re.findall(r"\b((?:scripts|tools|benchmarks)/[\w.]+)", path.read_text(encoding="utf-8"))
    assert named
    assert all((ROOT / name).is_file() for name in named)
