"""docs/formats.md lists the versions that the code writes."""

import re
from pathlib import Path

import pytest

pytest.importorskip("faiss")

from doap import descriptor
from doap.collection import features
from doap.collection.index import folder
from doap.data import writer
from doap.data.builders import from_tracks
from doap.evaluation import comparison, result

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"
FORMATS = {
    "patch set": writer.FORMAT,
    "track file": from_tracks.FORMAT,
    "descriptor": descriptor.FORMAT,
    "feature set": features.FORMAT,
    "index": folder.FORMAT,
    "evaluation results": result.FORMAT,
    "comparison": comparison.FORMAT,
}


def test_the_page_lists_the_current_version_of_every_format():
    listed = re.findall(r"^\| \[([\w ]+)\]\(#[\w-]+\) \| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert dict(listed) == {name: str(version) for name, version in FORMATS.items()}


@pytest.mark.parametrize(
    ("section", "columns"),
    [
        ("Patch sets", writer.SCHEMA.names),
        ("Track files", from_tracks.SCHEMA.names),
        ("Feature sets", features.SCHEMA.names),
    ],
)
def test_the_page_documents_every_column(section, columns):
    text = PAGE.read_text(encoding="utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0]
    assert all(f"`{column}`" in text for column in columns)
