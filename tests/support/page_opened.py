"""The page of a stand-in, opened in a browser, with a signal that it has been drawn."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp.test_utils import TestServer

from tests.support.browser import Page, new_page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.page_stand_in import StandIn

DRAWN = "document.querySelector('#last table')"
TASKS = "document.querySelector('#tasks table')"
LIVE = "document.getElementById('live').dataset.state === 'live'"


@asynccontextmanager
async def opened(browser: str, stand_in: StandIn, place: str = "") -> AsyncIterator[Page]:
    """Open the page of a stand-in, which must not send requests to any other server."""
    async with TestServer(stand_in.application()) as server, new_page(browser) as page:
        # High enough for all rows: the overview shows as many as the screen has room for.
        await page.resize(1440, 1800)
        await page.open(str(server.make_url("/")) + place)
        await page.until("document.documentElement.dataset.started")
        yield page
        assert {url.split("/", 3)[2] for url in page.requests()} == {f"127.0.0.1:{server.port}"}
