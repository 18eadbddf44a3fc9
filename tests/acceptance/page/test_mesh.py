"""The matrix of a mesh, in a real browser with a real node."""

from __future__ import annotations

import pytest

from tests.acceptance.outsider import Outsider
from tests.support.browser import new_page

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="session")]


async def test_a_mesh_has_a_matrix(browser: str, nodes: list[Outsider]) -> None:
    """A mesh has an address with the latest result of each pair, which leads to the pair's runs."""
    a = nodes[0]
    thresholds = {"rtt_median_ms": {"fair": 0.000001, "bad": 9000}}
    ends = {"source": "a", "dest": "b"}
    reference = {"mesh": "seen", "key": "rtt/a/b", **ends, "thresholds": thresholds}
    spec = {"dest": "127.0.0.1", "count": 2}
    task = await a.create("rtt", spec=spec, reference=reference)
    run = await a.finished(await a.run(task))
    async with new_page(browser) as page:
        await page.open(f"{a.url}/#token={a.token}")
        await page.until("document.querySelector('#views a')")
        await page.click("#views a[data-view='mesh']")
        await page.until("document.querySelector('#mesh-view a[href=\"#mesh=seen\"]')")
        await page.click("#mesh-view a[href='#mesh=seen']")
        await page.until("document.querySelector('#mesh-view td.fair a')")
        cell = await page.text("#mesh-view td.fair")
        [median] = (m["value"] for m in run["metrics"] if m["name"] == "rtt_median_ms")
        assert f"{float(f'{median:.3g}'):g} ms" in cell
        assert "1 of 1 delivered" in cell
        told = await page.text("#mesh-view .hint")
        assert "median fair from 0.000001 ms on, bad from 9000 ms on (by the mesh file)" in told
        assert "loss fair from 0.1 % on, bad from 1 % on (usual; a mesh file may say" in told
        await page.evaluate(
            "((figure) => { figure.value = 'loss'; figure.dispatchEvent(new Event('change')); })"
            "(document.getElementById('figure-rtt'))"
        )
        await page.until("document.querySelector('#mesh-view .value').innerText === '0 %'")
        assert "rtt median" in await page.text("#mesh-view td.fair .beyond")
        await page.evaluate("document.querySelector('#mesh-view td.fair a').focus()")
        await page.press("Enter")
        await page.until("location.hash === '#view=pair&source=a&dest=b'")
        await page.until(f"document.querySelector('#pair-view a[href*=\"run={run['id']}\"]')")
        await page.resize(1440, 900, dark=True)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.complaints() == []
