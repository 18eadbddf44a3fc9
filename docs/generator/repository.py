"""Links from the documentation to files of the repository, which readers of the pages lack."""

from __future__ import annotations

import os
import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
_DOCS = REPOSITORY / "docs"
_POLICIES = REPOSITORY / "lead" / "policy" / "README.md"
_FOR_DEVELOPERS = "## Driving an episode"
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def resolve_links(text: str, place: Path, page: Path) -> str:
    """Return Markdown of a file for a page: links to pages stay, others become names of files.

    ``place`` is the file whose text it is, ``page`` the one that shows it.
    """

    def resolved(link: re.Match[str]) -> str:
        words, path, anchor = link[1], link[2], link[3] or ""
        target = (place.parent / path).resolve()
        if target == _POLICIES:
            target = _DOCS / "concepts" / "policies.md"
        if target.is_relative_to(_DOCS):
            return f"[{words}]({os.path.relpath(target, page.parent)}{anchor})"
        name = target.relative_to(REPOSITORY).as_posix()
        return words if words.strip("`/") in name else f"{words} (`{name}`)"

    return _LINK.sub(resolved, text)


def policies() -> str:
    """Return the description of the policies, which stands beside their code, without its title.

    What concerns the code comes last.
    """
    text = resolve_links(
        _POLICIES.read_text(encoding="utf-8").partition("\n")[2],
        _POLICIES,
        _DOCS / "concepts" / "policies.md",
    )
    inside, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    code = [section for section in sections if section.startswith(_FOR_DEVELOPERS)]
    others = [section for section in sections if section not in code]
    return "".join([*others, f"\n## In the code\n{inside}", *code])
