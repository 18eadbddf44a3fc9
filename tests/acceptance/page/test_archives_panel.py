"""The page's panel of archives in a real browser."""

from __future__ import annotations

import pytest

from tests.support import page_scene as scene
from tests.support.page_opened import opened
from tests.support.page_stand_in import StandIn

pytestmark = pytest.mark.timeout(40)


@pytest.mark.nightly
async def test_waiting_deliveries_are_retried(browser: str) -> None:
    """The panel shows the backlog of a destination, and its button retries the deliveries."""
    stand_in = StandIn()
    stand_in.backlog = [scene.BACKLOG]
    async with opened(browser, stand_in, "#view=archives") as page:
        await page.until("document.querySelectorAll('#archives tbody tr').length === 1")
        panel = await page.text("#archives")
        for word in ("https://collector.example/in", "3", "41", ":00:00", "404 Not Found"):
            assert word in panel
        await page.click("#archives button")
        await page.until("document.querySelector('#archives .empty.settled')")
        assert stand_in.retried == [{"destination": 7}]
        assert page.complaints() == []
