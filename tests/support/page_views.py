"""The views of the page on the day of a mesh: where they are, and when they are drawn."""

from __future__ import annotations

from tests.support.page_hands import Hands

VIEWS = {
    "overview": (
        "",
        "document.querySelector('#last table') && document.querySelector('#health li')",
    ),
    "alerts": ("view=alerts", "document.querySelector('#alerts tbody tr')"),
    "mesh": ("mesh=backbone", "document.querySelectorAll('#mesh-view .matrix canvas').length > 1"),
    "pair": (
        "view=pair&source=berlin&dest=prague",
        "document.querySelectorAll('#pair-view .u-legend tr').length > 2",
    ),
    "timeline": (
        "view=timeline&length=7200&by=host",
        "/ \\d+ oslo · normal/.test(document.querySelector('#timeline-view canvas').ariaLabel)",
    ),
    "tasks": ("view=tasks", "document.querySelector('#tasks table')"),
    "nodes": ("view=nodes", "document.querySelectorAll('#node-list tbody tr').length === 5"),
    "capacity": ("view=capacity", "document.querySelector('.heat td.current')"),
    "limits": ("view=limits", "document.querySelectorAll('#limits tbody tr').length === 3"),
    "campaigns": ("view=campaigns", "document.querySelector('#campaigns table')"),
    "sharing": ("view=sharing", "document.querySelector('#sharing-view table')"),
    "archives": ("view=archives", "document.querySelector('#archives table')"),
    "events": ("view=events", "document.querySelectorAll('.events li').length > 3"),
    "search": ("view=search", "document.querySelector('.causes li')"),
}
"""By name of a view, its address, and what holds once it is drawn."""


async def go(page: Hands, name: str) -> None:
    """Go to a view, and wait until it is drawn and the navigation says so."""
    address, drawn = VIEWS[name]
    await page.evaluate(f"void (location.hash = '{address}')")
    marked = "[...document.querySelectorAll('nav [aria-current]')].at(-1).dataset.view"
    await page.until(f"document.body.dataset.view === '{name}' && {marked} === '{name}' && {drawn}")
