"""Checks a page with axe-core, the engine behind most checkers of accessibility."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.browser import Page

_FILE = Path(__file__).parent / "axe" / "axe.min.js"
_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
"""Digest of axe-core 4.14.1, as the registry has it (MPL-2.0; its licence is beside it)."""

_RUN = """axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) =>
    violations.flatMap(({ id, nodes }) =>
        nodes.map((node) => `${id}: ${node.html.slice(0, 160)}`)))"""


@cache
def _engine() -> str:
    content = _FILE.read_bytes()
    assert hashlib.sha256(content).hexdigest() == _SHA256
    return content.decode()


async def violations(page: Page) -> list[str]:
    """Return what axe objects to in the page as it is now: the rule, and the element."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(_engine())
    found: list[str] = await page.evaluate(_RUN)
    return found
