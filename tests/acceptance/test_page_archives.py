"""The page's panel of archives in a real browser."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import TestServer

from tests import page_scene as scene
from tests.browser import Page, chromium, new_page
from tests.page_stand_in import StandIn

pytestmark = pytest.mark.timeout(40)


async def test_what_waits_for_an_archive_is_tried_again() -> None:
    """Where results go, how many wait since when and why; the button has them tried again."""
    stand_in = StandIn()
    stand_in.backlog = [scene.BACKLOG]
    with chromium() as browser:
        async with (
            TestServer(stand_in.application()) as server,
            new_page(browser) as page,
        ):
            await page.open(str(server.make_url("/")))
            await _tried_again(page)
            assert stand_in.retried == [{"destination": 7}]
            assert page.complaints() == []


async def _tried_again(page: Page) -> None:
    await page.until("document.querySelectorAll('#archives tbody tr').length === 1")
    told = await page.text("#archives")
    for word in ("https://collector.example/in", "3", "41", ":00:00", "404 Not Found"):
        assert word in told
    await page.click("#archives button")
    await page.until("document.getElementById('archives-panel').hidden")
