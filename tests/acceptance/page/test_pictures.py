"""Each view of the page on the day of a mesh: checked by axe on several screens, and pictured.

The pictures are in ``build/pictures``. Those of the documentation come from here, too, by
``make screenshots``; a test says when they no longer show what the page does.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
import pytest_asyncio

from tests.architecture.sources import REPOSITORY
from tests.support.accessibility import violations
from tests.support.browser import Page, new_page
from tests.support.mesh_day import MeshDay
from tests.support.page_opened import LIVE
from tests.support.page_views import VIEWS, go

pytestmark = [pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="session")]

PICTURES = REPOSITORY / "build" / "pictures"
DOCUMENTED = ("overview", "mesh", "pair", "timeline", "capacity", "search", "run")
"""The views whose pictures the documentation has."""
SHOWN = REPOSITORY / "docs" / "static" / "page"
WORDS = """[...document.querySelectorAll('dialog[open] *, body:not(:has(dialog[open])) *')]
    .filter((each) => each.checkVisibility() && each.matches('h2, h3, th, dt, .legend li, .hint,'
        + ' #views a, [aria-pressed], figcaption span'))
    .map((each) => each.textContent.replaceAll(/[\\d:.]+/g, '0').trim()).filter(Boolean)"""
"""The words on a picture besides the data: headings, heads of columns, keys, buttons."""


class Screen(NamedTuple):
    """A size of the window in pixels, a colour scheme, and rules of axe; all without any."""

    width: int
    height: int
    dark: bool = False
    rules: tuple[str, ...] | None = ()
    """None for no look at all."""


CONTRAST = ("color-contrast",)
"""The only rule to which the colour scheme matters."""
TRACE = "document.querySelector('#drawer[open] .trace')"
DESK = Screen(1440, 900)
SCREENS = {
    "desk": DESK,
    "phone": Screen(360, 740, rules=None),
    "wall": Screen(2560, 1440, rules=None),
    "phone-dark": Screen(360, 740, dark=True),
    "desk-dark": Screen(1440, 900, dark=True, rules=CONTRAST),
}


async def show(page: Page, screen: Screen) -> None:
    """Give the window a size and colours, and wait until the page follows."""
    await page.evaluate("void (window.plotted = document.querySelector('#pair-view canvas'))")
    dark = await page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    await page.resize(screen.width, screen.height, dark=screen.dark)
    if dark != screen.dark:  # a plot is drawn anew
        await page.until("!plotted || document.querySelector('#pair-view canvas') !== plotted")
        await page.until("!plotted || document.querySelector('#pair-view .u-legend')")
    await page.evaluate(
        "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"
    )


async def looked_at(page: Page, name: str) -> list[str]:
    """Picture what is shown on each screen; return what is wrong with it."""
    found = []
    # The head of the page is the same in all views.
    within = {"overview": None, "run": "#drawer"}.get(name, "#view-panel")
    for screen, size in SCREENS.items():
        await show(page, size)
        (PICTURES / f"{name}-{screen}.png").write_bytes(await page.picture())
        if size.rules is not None:
            found += [
                f"{screen}: {each}" for each in await violations(page, *size.rules, within=within)
            ]
        if await page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found.append(f"{screen}: it is wider than the screen")
    await show(page, DESK)
    return found


class Pictured(NamedTuple):
    """The findings of each view: its faults, and of those in the documentation the words."""

    faults: dict[str, list[str]]
    words: dict[str, list[str]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pictured(browser: str, day: MeshDay) -> Pictured:
    """Open each view by its address, look at it on each screen, and keep its pictures."""
    (PICTURES / "docs").mkdir(parents=True, exist_ok=True)
    found = Pictured({}, {})
    async with new_page(browser) as page:
        await page.open(f"{day.url}/#token={day.token}")
        await page.until(LIVE)
        for name in (*VIEWS, "run"):
            if name == "run":
                await page.evaluate(f"void (location.hash = 'view=events&run={day.explained}')")
                await page.until(f"{TRACE}.checkVisibility()")
                await page.evaluate(f"{TRACE}.scrollIntoView({{ block: 'center' }})")
            else:
                await go(page, name)
            if name in DOCUMENTED:
                picture = await page.picture(format="webp", quality=80)
                (PICTURES / "docs" / f"{name}.webp").write_bytes(picture)
                found.words[name] = await page.evaluate(WORDS)
            found.faults[name] = await looked_at(page, name)
        # The browser itself complains of answers that the page tells: no other host answers.
        complaints = [each for each in page.complaints() if " 502 " not in each]
        own = (f"{day.url}/", "data:")  # icons of the browser's own fields are data
        foreign = [url for url in page.requests() if not url.startswith(own)]
        found.faults["all"] = [*complaints, *foreign]
    written = json.dumps(found.words, indent=1, ensure_ascii=False)
    (PICTURES / "docs" / "words.json").write_text(written)
    return found


@pytest.mark.nightly
async def test_each_view_has_an_address_and_no_barrier(pictured: Pictured) -> None:
    """Each view passes axe, fits a phone, a desk and a wall, and asks no other host."""
    assert {name: each for name, each in pictured.faults.items() if each} == {}


@pytest.mark.nightly
async def test_the_documentation_shows_the_page_as_it_is(pictured: Pictured) -> None:
    """The pictures of the documentation have the words that the page has now."""
    shown = json.loads((SHOWN / "words.json").read_text())
    assert pictured.words == shown, "the page has changed: make screenshots"
    pictures = {file.stem for file in SHOWN.glob("*.webp")}
    page = (REPOSITORY / "docs" / "how-to" / "page.md").read_text()
    assert pictures == set(DOCUMENTED)
    assert all(f"../static/page/{name}.webp" in page for name in DOCUMENTED)
    assert all(file.stat().st_size < 150_000 for file in SHOWN.glob("*.webp"))
