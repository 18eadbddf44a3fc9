"""The matrix of a mesh, in a real browser with a real node."""

from __future__ import annotations

import pytest

from tests.acceptance.outsider import Outsider
from tests.support.browser import new_page

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="session")]


async def test_a_mesh_has_a_matrix(browser: str, nodes: list[Outsider]) -> None:
    """A mesh has an address with the latest result of each pair, which leads to the pair's runs."""
    a = nodes[0]
    reference = {"mesh": "seen", "key": "rtt/a/b", "source": "a", "dest": "b"}
    spec = {"dest": "127.0.0.1", "count": 2}
    task = await a.create("rtt", spec=spec, reference=reference)
    run = await a.finished(await a.run(task))
    async with new_page(browser) as page:
        await page.open(f"{a.url}/#token={a.token}")
        await page.until("document.querySelector('#views a')")
        await page.click("#views a[data-view='mesh']")
        await page.until("document.querySelector('#mesh-view a[href=\"#mesh=seen\"]')")
        await page.click("#mesh-view a[href='#mesh=seen']")
        await page.until("document.querySelector('#mesh-view td.good a')")
        cell = await page.text("#mesh-view td.good")
        assert run["summary"] in cell
        assert "1 of 1" in cell
        await page.evaluate("document.querySelector('#mesh-view td.good a').focus()")
        await page.press("Enter")
        await page.until("location.hash === '#view=pair&source=a&dest=b'")
        await page.until(f"document.querySelector('#pair-view a[href*=\"run={run['id']}\"]')")
        await page.resize(1440, 900, dark=True)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.complaints() == []
