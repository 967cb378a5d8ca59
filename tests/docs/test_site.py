"""The site builds without warnings, and every page is reachable. Links work, notebooks run, the API is documented.

Building the site executes the notebooks; an error in a cell fails the build, and with it all tests of this file.
"""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

import pytest

pytest.importorskip("sphinx", reason="needs the extra `docs`")
pytest.importorskip("myst_parser")
pytest.importorskip("myst_nb")
pytest.importorskip("skimage", reason="needs the extra `examples`")
pytest.importorskip("furo")

# One worker of xdist builds the site for all tests.
pytestmark = pytest.mark.xdist_group("site")
DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted(path.stem for path in (DOCS / "notebooks").glob("*.md"))
PACKAGES = """
baselines data data.readers detectors evaluation export metrics geometry images loss matching networks
collection training
"""


class Links(HTMLParser):
    """The targets and the anchors of a page, and its pictures without an alternative text."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.undescribed: set[str] = set()
        self.ids: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.ids |= {found[name] for name in ("id", "name") if found.get(name)}
        self.targets |= {found[name] for name in ("href", "src") if found.get(name)}
        if tag == "img" and not (found.get("alt") or "").strip():
            self.undescribed.add(found.get("src") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, and its pages by path."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-d", out / "trees"]
    ran = subprocess.run([*command, DOCS, out / "html"], capture_output=True, text=True, timeout=1800)
    assert ran.returncode == 0, ran.stderr
    pages = {path.relative_to(out / "html").as_posix(): Links(path) for path in (out / "html").rglob("*.html")}
    return out / "html", pages


def test_every_page_is_reachable_from_the_first(site):
    _, pages = site
    written = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")}
    assert written <= {*pages["index.html"].targets, "index.html"}


def test_internal_links_work(site):
    root, pages = site
    dead = []
    # Sphinx guesses the links from source pages back to the documentation.
    for name, page in ((name, page) for name, page in pages.items() if not name.startswith("_modules/")):
        for target in page.targets:
            path, _, anchor = unquote(target).partition("#")
            if "://" in target or target.startswith(("data:", "mailto:")):
                continue
            file = (root / name).parent.joinpath(path.partition("?")[0]).resolve() if path else root / name
            other = pages.get(file.relative_to(root).as_posix())
            if not file.is_file() or (anchor and other and anchor not in other.ids):
                dead.append(f"{name}: {target}")
    assert not dead


def test_every_picture_has_an_alternative_text(site):
    _, pages = site
    assert not {name: page.undescribed for name, page in pages.items() if page.undescribed}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_executed_and_shows_pictures_and_a_table(name, site):
    root, pages = site
    # myst-nb writes executed notebooks beside the folder of the site.
    executed = json.loads((root.parent / "jupyter_execute" / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in executed["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    page = (root / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
    outputs = "".join(page.split('<div class="cell_output')[1:])
    pictures = [target for target in pages[f"notebooks/{name}.html"].targets if target.startswith("../_images/")]
    assert len(pictures) >= 3
    assert "<table" in outputs


@pytest.mark.parametrize("package", ["doap", *(f"doap.{name}" for name in PACKAGES.split())])
def test_the_api_reference_documents_every_public_name(package, site):
    _, pages = site
    ids = {one for name, page in pages.items() if name.startswith("api/") for one in page.ids}
    documented = {one.rpartition(".")[2] for one in ids}
    assert set(import_module(package).__all__) - {"__version__"} <= documented
