"""The matrix of a mesh, in a real browser with a real node."""

from __future__ import annotations

import pytest

from tests.acceptance.outsider import Outsider
from tests.support.accessibility import violations
from tests.support.browser import new_page
from tests.support.mesh_day import MESH, MeshDay

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="session")]

BOTH_WAYS = """(async () => {
    const { fetchMesh } = await import('/web/mesh.js');
    const { lookOf } = await import('/web/outcomes.js');
    const headers = { Authorization: 'Bearer %s' };
    const asked = [];
    const get = async (path) => (asked.push(path), (await fetch(path, { headers })).json());
    const shown = async (isLarge) => {
        let told = [];
        await fetchMesh({ get }, '%s', isLarge, (pairs) => (told = pairs));
        return told.map((pair) => `${pair.key} ${lookOf(pair)}`).sort();
    };
    return [await shown(false), await shown(true), asked];
})()"""
MATRIX = "document.querySelector('#mesh-view .matrix canvas')"


async def test_a_mesh_has_a_matrix(browser: str, nodes: list[Outsider]) -> None:
    """A mesh is a matrix of squares; keys walk through it, tell each pair, and lead to its runs."""
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
        await page.until(f"{MATRIX}.ariaLabel.startsWith('Matrix of rtt, 1 by 1')")
        told = await page.text("#mesh-view section .hint")
        assert "rtt median is fair from 0.000001 ms on, and bad from 9000 ms on" in told
        await page.evaluate(f"{MATRIX}.focus()")
        await page.press("ArrowRight")
        await page.until("!document.querySelector('#mesh-view .tip').hidden")
        tip = await page.text("#mesh-view .tip")
        [median] = (m["value"] for m in run["metrics"] if m["name"] == "rtt_median_ms")
        assert "a → b" in tip
        assert "fair" in tip
        assert "rtt_median_ms is" in tip
        assert f"rtt median {float(f'{median:.3g}'):g} ms" in tip
        assert "1 of 1 delivered" in tip
        assert await violations(page, within="#view-panel") == []
        await page.press("Enter")
        await page.until("document.activeElement.textContent === 'over time, both ways'")
        await page.press("Enter")
        await page.until("location.hash === '#view=pair&source=a&dest=b'")
        await page.until(f"document.querySelector('#pair-view a[href*=\"run={run['id']}\"]')")
        assert page.complaints() == []


@pytest.mark.nightly
async def test_a_large_mesh_is_read_in_one_answer(browser: str, day: MeshDay) -> None:
    """A letter for each pair tells what all of it tells; the rest is asked for some pairs only."""
    async with new_page(browser) as page:
        await page.open(f"{day.url}/#token={day.token}")
        await page.until("document.querySelector('#views a')")
        small, large, asked = await page.evaluate(BOTH_WAYS % (day.token, MESH))
    assert small == large
    assert len({line.split()[1] for line in large}) > 1
    assert [path.partition("?")[0].rpartition("/")[2] for path in asked] == [
        "pairs",
        "matrix",
        "pairs",
    ]
