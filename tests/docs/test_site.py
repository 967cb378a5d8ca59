"""The site: built without a warning, every page can be reached, every link inside it leads somewhere."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

pytest.importorskip("sphinx", reason="the site is built where the extra `docs` is installed")
pytest.importorskip("myst_parser")
pytest.importorskip("furo")

DOCS = Path(__file__).parents[2] / "docs"


class Links(HTMLParser):
    """Where a page points to, and what can be pointed at in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.ids: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.ids |= {found[name] for name in ("id", "name") if found.get(name)}
        self.targets |= {found[name] for name in ("href", "src") if found.get(name)}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """All of its pages by their path inside the site."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-d", out / "trees"]
    ran = subprocess.run([*command, DOCS, out / "html"], capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    pages = {path.relative_to(out / "html").as_posix(): Links(path) for path in (out / "html").rglob("*.html")}
    return out / "html", pages


def test_every_page_can_be_reached_from_the_first(site):
    _, pages = site
    written = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")}
    assert written <= {*pages["index.html"].targets, "index.html"}


def test_links_inside_the_site_lead_somewhere(site):
    root, pages = site
    dead = []
    # Sphinx's pages of code point back by names that it guesses.
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


def test_code_that_pages_point_to_is_in_the_site(site):
    _, pages = site
    assert "_modules/doap/functional/average_precision.html" in pages["loss.html"].targets
    assert "_modules/doap/functional/average_precision.html" in pages
