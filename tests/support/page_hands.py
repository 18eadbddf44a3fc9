"""The hands of a reader of the page: on buttons and fields, in whichever browser."""

from __future__ import annotations

import json
from typing import Protocol

BODY = "document.getElementById('act-body')"
MESH = """name = "pasted"
[groups]
all = ["a", "b"]
[tests.rtt]
type = "idle"
[schedules.hourly]
repeat = "PT1H"
[[measure]]
test = "rtt"
schedule = "hourly"
shape = "full-mesh"
members = "all"
"""
"""A mesh file of two tasks, called pasted."""


class Hands(Protocol):
    """A tab of a browser, whichever it is."""

    async def evaluate(self, expression: str) -> object:
        """Evaluate an expression in the page."""

    async def until(self, condition: str) -> None:
        """Wait until a condition holds in the page."""


class Keys(Hands, Protocol):
    """A tab with a keyboard."""

    async def press(self, key: str) -> None:
        """Press and release one key."""


async def press_button(page: Keys, box: str, words: str) -> None:
    """Wait for a visible button with these words, focus it, and press Enter."""
    find = button(box, words)
    await page.until(f"Boolean({find})")
    await page.evaluate(f"{find}.focus()")
    await page.press("Enter")


async def click_button(page: Hands, box: str, words: str) -> None:
    """Wait for a visible button with these words, and click it."""
    find = button(box, words)
    await page.until(f"Boolean({find})")
    await page.evaluate(f"{find}.click()")


def button(box: str, words: str) -> str:
    """Return the expression that finds a visible button with these words."""
    return (
        f"[...document.querySelectorAll('{box} button')].find((each) => "
        f"each.textContent === {json.dumps(words)} && !each.disabled && each.checkVisibility())"
    )


async def click_labelled(page: Hands, label: str) -> None:
    """Wait for a button with this label, and click it."""
    find = f"document.querySelector('button[aria-label=\"{label}\"]')"
    await page.until(find)
    await page.evaluate(f"{find}.click()")


async def choose(page: Hands, label: str, value: str) -> None:
    """Set the field with this label as if it was typed or chosen."""
    await page.evaluate(
        f"""(() => {{
            const label = [...{BODY}.querySelectorAll('label')].find(
                (each) => each.firstChild.textContent === {json.dumps(label)});
            const input = document.getElementById(label.htmlFor);
            for (const box of {BODY}.querySelectorAll('details')) box.open ||= box.contains(input);
            input.value = {json.dumps(value)};
            for (const kind of ['input', 'change'])
                input.dispatchEvent(new Event(kind, {{ bubbles: true }}));
        }})()"""
    )


def says(words: str) -> str:
    """Return the condition that the dialog has these words."""
    return f"{BODY}.innerText.includes({json.dumps(words)})"
