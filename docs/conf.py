"""Sphinx configuration. `scripts/docs` builds the site with warnings as errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from doap import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "doap"
author = "The doap authors"
copyright = "The doap authors, Apache-2.0"
release = version = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_copybutton"]
exclude_patterns = ["_build", "pictures"]
html_theme = "furo"
html_title = f"doap {__version__}"
html_static_path = ["_static"]
html_css_files = ["doap.css"]
html_js_files = ["doap.js"]
html_copy_source = False
html_show_sphinx = False

myst_heading_anchors = 3
# The build executes the notebooks in docs/notebooks, each in an empty folder, and keeps their outputs until their code
# changes. An error in a cell, or a message on stderr, fails the build.
nb_execution_mode = "cache"
nb_execution_in_temp = True
# Seconds per cell. A busy machine needs many times the usual few seconds.
nb_execution_timeout = 1200
nb_execution_raise_on_error = True
nb_output_stderr = "remove-warn"
nb_merge_streams = True
# Tables are Markdown.
nb_render_markdown_format = "myst"
# Fences without a language contain shell commands.
highlight_language = "bash"
# Copy buttons leave out prompts and outputs.
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
# Docstrings use single backticks for code.
default_role = "code"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
maximum_signature_line_length = 88
python_use_unqualified_type_names = True

_ARRAY = re.compile(r"~?numpy\.ndarray\[tuple\[~?typing\.Any, \.\.\.\], ~?numpy\.dtype\[(.+?)\]\]")
_EMPTY_HEADER = re.compile(r'<th class="head[^"]*"><p></p></th>')
_PARAMETERS = re.compile(r"<dl>\n(?:<dd>.*</dd>\n)+</dl>")
_NAVIGATION: dict[tuple[object, ...], str] = {}
_UPWARDS = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)([^)\s]+)\)")


def _link_inside(_app: Sphinx, page: str, source: list[str]) -> None:
    """Replace links to files outside docs/, which work on a code host, by links within the site.

    A module links to its source page and a model card to its page. Other files (results, recipes) keep only their name.
    """
    up = "../" * page.count("/")

    def inside(link: re.Match[str]) -> str:
        text, upwards, target = link.groups()
        if len(upwards) <= len(up):
            return link[0]
        if code := re.fullmatch(r"src/(doap/[\w/]+)\.py", target):
            return f'<a href="{up}_modules/{code[1]}.html">{text}</a>'
        if card := re.fullmatch(r"src/doap/weights/([\w-]+\.md)", target):
            return f"[{text}]({up}cards/{card[1]})"
        return text

    source[0] = _UPWARDS.sub(inside, source[0])


def _from_markdown(_app: Sphinx, _what: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Convert docstrings, which are written as plain text, to reStructuredText.

    An indented block after an empty line becomes a literal block. Letters may follow code, as in `KeyPoint`s. A line
    that consists of "S." does not start a list.
    """
    written = [""]
    for line in lines:
        before = next((one for one in reversed(written) if one.strip()), "")
        if line.startswith("    ") and not written[-1].strip() and before[:1] not in ("", " ", "-", ">"):
            written += [".. code-block:: text", ""]
        line = re.sub(r"(`[^`]+`)(?=\w)", r"\1\\ ", line)
        written.append(re.sub(r"(^\s*|: )(?=[A-Z]\.)", r"\1\\", line))
    lines[:] = written[1:]


def _short_arrays(
    _app: Sphinx, _what: str, _name: str, _object: object, _options: object, arguments: str | None, returned: str | None
) -> tuple[str | None, ...]:
    """Shorten the types of arrays to NDArray[…]."""
    return tuple(text and _ARRAY.sub(r"NDArray[\1]", text) for text in (arguments, returned))


def _share_navigation(_app: Sphinx, page: str, _template: str, context: dict[str, Any], _tree: object) -> None:
    """Resolve the navigation once for all source pages of one depth, which takes a tenth of a second.

    It does not contain source pages, so its relative links depend only on the depth of the page.
    """
    if page.startswith("_modules/") and "toctree" in context:
        resolve = context["toctree"]

        def toctree(**options: object) -> str:
            key = page.count("/"), *sorted(options.items())
            if key not in _NAVIGATION:
                _NAVIGATION[key] = resolve(**options)
            return _NAVIGATION[key]

        context["toctree"] = toctree


def _accessible(_app: Sphinx, _page: str, _template: str, context: dict[str, object], _tree: object) -> None:
    """Add what screen readers need: a level of the navigation's captions, and roles of the parameters of a signature.

    A signature on several lines is a definition list without terms, which is a list. A table header without text is an
    ordinary cell.
    """
    tree = str(context.get("furo_navigation_tree", ""))
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')
    if body := context.get("body"):
        context["body"] = _EMPTY_HEADER.sub("<td></td>", _PARAMETERS.sub(_as_list, str(body)))


def _as_list(parameters: re.Match[str]) -> str:
    items = parameters[0].replace("<dd>", '<div role="listitem">').replace("</dd>", "</div>")
    return items.replace("<dl>", '<div role="list">').replace("</dl>", "</div>")


def _write_llms(app: Sphinx, error: Exception | None) -> None:
    """Write llms.txt (llmstxt.org): the sections and pages of the site, with the first sentence of each page."""
    if error or app.builder.format != "html":
        return
    start = (app.srcdir / "index.md").read_text(encoding="utf-8")
    lines = ["# doap", "", f"> {_first_sentence(start)}"]
    for tree in re.finditer(r"```{toctree}\n:caption: ([^\n]+)\n:hidden:\n\n(.+?)\n```", start, re.S):
        lines += ["", f"## {tree[1]}", ""]
        for entry in tree[2].splitlines():
            page = re.sub(r".*<(.+)>", r"\1", entry)
            text = (app.srcdir / f"{page}.md").read_text(encoding="utf-8")
            title, summary = app.env.titles[page].astext(), _first_sentence(text)
            lines.append(f"- [{title}]({page}.html)" + (f": {summary}" if summary else ""))
    (app.outdir / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _first_sentence(page: str) -> str:
    """Return the first sentence of a Markdown page without links; empty if the page starts with something else."""
    prose = re.sub(r"\A---\n.*?\n---\n|^```.*?^```$", "", page, flags=re.S | re.M)
    paragraphs = re.split(r"\n{2,}", prose)
    text = next((one for one in paragraphs if re.match(r"[A-Z*`]", one)), "")
    plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(text.split()))
    return re.sub(r":$", ".", re.split(r"(?<=[.?])\s", plain)[0])


def setup(app: Sphinx) -> None:
    """Register the hooks."""
    app.connect("build-finished", _write_llms)
    app.connect("source-read", _link_inside)
    # Runs before the theme, which writes the navigation.
    app.connect("html-page-context", _share_navigation, priority=400)
    # Runs after the theme.
    app.connect("html-page-context", _accessible, priority=900)
    # Runs before napoleon, which indents sections.
    app.connect("autodoc-process-docstring", _from_markdown, priority=400)
    app.connect("autodoc-process-signature", _short_arrays)
