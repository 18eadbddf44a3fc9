"""Links in the documentation work, and the modules that it names exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from node.journal.events import GAP, KINDS
from tests.architecture.sources import REPOSITORY, where

ANCHOR = re.compile(r"\]\(([^)#:\s]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
MODULE = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|sql|toml|md))`")
GRANT = re.compile(r"GRANT SELECT ON ([\w,\s]+) TO parley_reader")
EXAMPLES = {"m300.toml", "task.json"}
"""Files that a page tells its reader to create."""


def pages() -> list[Path]:
    """Return every Markdown page that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return [REPOSITORY / name for name in listed.stdout.split()]


@pytest.mark.parametrize("page", pages(), ids=where)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file or folder of the repository."""
    targets = set(LINK.findall(page.read_text(encoding="utf-8")))
    assert {target for target in targets if not (page.parent / target).exists()} == set()


@pytest.mark.parametrize("page", pages(), ids=where)
def test_links_lead_to_headings(page: Path) -> None:
    """Every link to a part of a page names one of its headings, unless Sphinx makes the page."""
    links = ANCHOR.findall(page.read_text(encoding="utf-8"))
    targets = {(page.parent / target if target else page, anchor) for target, anchor in links}
    dead = {
        f"{where(target.resolve())}#{anchor}"
        for target, anchor in targets
        if target.suffix == ".md"
        and target.exists()
        and "{include}" not in target.read_text("utf-8")
        if anchor not in anchors(target)
    }
    assert dead == set()


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings: their words in small letters, joined by hyphens."""
    headings = HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    texts = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


@pytest.mark.parametrize("page", pages(), ids=where)
def test_named_modules_exist(page: Path) -> None:
    """Every file that a page names exists, relative to the page or to the repository."""
    names = set(MODULE.findall(page.read_text(encoding="utf-8"))) - EXAMPLES
    bases = [page.parent, REPOSITORY, REPOSITORY / "node", REPOSITORY / "lead"]
    missing = {
        name
        for name in names
        if not any((base / name).exists() for base in bases) and not list(page.parent.rglob(name))
    }
    assert missing == set()


def test_the_reference_has_all_kinds_of_events() -> None:
    """The page on the API has a row for each type of event."""
    text = (REPOSITORY / "docs/reference/api.md").read_text("utf-8")
    rows = re.findall(r"^\| (`[^|]*`) \|", text.partition("## Events")[2], re.MULTILINE)
    named = {word for row in rows for word in re.findall(r"`([\w-]+)`", row)}
    assert set(KINDS) - named == set()
    assert named - set(KINDS) == {GAP}


def test_the_guide_grants_what_the_schema_grants() -> None:
    """The page on Grafana lists all views that the schema lets readers read."""
    texts = [
        (REPOSITORY / name).read_text("utf-8") for name in ("schema.sql", "docs/how-to/grafana.md")
    ]
    granted, documented = (re.split(r",\s*", GRANT.findall(text)[0]) for text in texts)
    assert documented == granted
