"""Checks a page with axe-core, the engine behind most checkers of accessibility."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

from deploy.page import PLACE, install_checkers

if TYPE_CHECKING:
    from tests.support.browser import Page

_RUN = """axe.run(%s, { resultTypes: ['violations']%s }).then(({ violations }) =>
    violations.flatMap(({ id, nodes }) =>
        nodes.map((node) => `${id}: ${node.html.slice(0, 160)}`)))"""


@cache
def _engine() -> str:
    """Return the program, as ``deploy/javascript`` locks it."""
    assert install_checkers(), "axe-core comes by npm"
    return (PLACE / "node_modules" / "axe-core" / "axe.min.js").read_text()


async def violations(page: Page, *rules: str, within: str | None = None) -> list[str]:
    """Return what axe objects to in the page, or within an element, by all rules or these."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(_engine())
    only = f", runOnly: {json.dumps(rules)}" if rules else ""
    found: list[str] = await page.evaluate(
        _RUN % (json.dumps(within) if within else "document", only)
    )
    return found
