"""The language of predicates, as the module that reads it describes it."""

from __future__ import annotations

import inspect

from docs.generator.markdown import block, page, plain
from node.model import predicates


def description() -> str:
    """Return the description of the module, its examples as a block, and its bounds."""
    paragraphs = (inspect.getdoc(predicates) or "").split("\n\n")
    kept = [each for each in paragraphs if not each.startswith("Everything here is pure")]
    return page(*map(_shown, kept), _bounds())


def _shown(paragraph: str) -> str:
    if paragraph.startswith("    "):
        return block(inspect.cleandoc(paragraph))
    return plain(" ".join(paragraph.replace("``", "").replace("::", ":").split()))


def _bounds() -> str:
    return plain(
        f"A predicate has at most {predicates.SIZE_MAX} conditions, nested at most "
        f"{predicates.DEPTH_MAX} deep."
    )
