"""How Sphinx builds the documentation: ``make docs``.

The reference is made from the code first (``docs/generator``), as Markdown that the pages include.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

from docs.generator.pages import write_pages  # noqa: E402 - the path comes first
from docs.generator.repository import resolve_links  # noqa: E402
from node.runtime.version import program_version  # noqa: E402

project = "Parley"
copyright = "the authors of Parley, Apache-2.0"  # noqa: A001 - Sphinx's name for it
version = release = program_version()

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
smartquotes = False
suppress_warnings = ["misc.highlighting_failure"]  # SQL with the macros of Grafana
root_doc = "index"
exclude_patterns = ["generated/parts"]

StandaloneHTMLBuilder.supported_image_types.append("image/webp")  # which browsers all know

html_theme = "furo"
html_title = "Parley"
html_static_path = ["static"]
html_css_files = ["custom.css"]
html_copy_source = False
html_show_sphinx = False
templates_path: list[str] = []

# The pages of commands have a section of their own in the manual: deploy/manual.py.
man_pages = [
    ("tutorial", "parley-tutorial", "a first hour with Parley", "", 7),
    ("reference/settings", "parley.env", "settings of Parley's services", "", 5),
    ("reference/limits", "parley-limits", "what other nodes may have of a host", "", 5),
    ("reference/mesh-file", "parley-mesh-file", "many measurements in one file", "", 5),
    ("concepts/glossary", "parley-glossary", "the words that Parley uses", "", 7),
]
man_show_urls = True

write_pages(DOCS / "generated")


def setup(app: Sphinx) -> None:
    """Let links to files of the repository become their names."""

    def read(_app: Sphinx, name: str, source: list[str]) -> None:
        page = DOCS / f"{name}.md"
        source[0] = resolve_links(source[0], page, page)

    app.connect("source-read", read)
