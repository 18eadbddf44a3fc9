"""A small writer of SVG: elements as text, and scales. Pure; independent of what is drawn.

Colours are classes (``PALETTE``) that follow the viewer's light or dark theme. Numbers are written
with at most two decimals, so that the same drawing gives the same text everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

PALETTE: Mapping[str, tuple[str, str]] = {
    "ground": ("#ffffff", "#141b25"),
    "ink": ("#131a24", "#e7edf5"),
    "muted": ("#556173", "#9dabbd"),
    "line": ("#dde2ea", "#273241"),
    "good": ("#1f7a4d", "#4cc38a"),
    "bad": ("#b3261e", "#ff8a80"),
    "late": ("#c07800", "#f0b45a"),
    "gone": ("#667085", "#95a2b5"),
    "strong": ("#1b62c4", "#62a4ff"),
    "medium": ("#7a5bb5", "#b79cf0"),
    "soft": ("#0f8590", "#4fc3cf"),
}
"""By name: the colour in the light theme and in the dark one."""

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")

Attribute = str | int | float
Point = tuple[float, float]


def element(name: str, /, *children: str, **attributes: Attribute) -> str:
    """Return an element; ``children`` are texts of elements.

    Attribute names lose a trailing underscore, the others become hyphens: ``class_``,
    ``text_anchor``. Only :func:`label` and :func:`tip` take plain text; they escape it.
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}={quoteattr(_value(value))}"
        for key, value in attributes.items()
    )
    inside = "".join(children)
    return f"<{name}{written}>{inside}</{name}>" if inside else f"<{name}{written}/>"


def _value(value: Attribute) -> str:
    return value if isinstance(value, str) else number(value)


def number(value: float) -> str:
    """Format a number with at most two decimals and without trailing zeros."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _text(text: str) -> str:
    return escape(_UNPRINTABLE.sub("\ufffd", text))


def label(x: float, y: float, text: str, kind: str = "muted", **attributes: Attribute) -> str:
    """Return text at a place; ``kind`` is its colour, ``text_anchor`` the end that lies there."""
    return element("text", _text(text), x=x, y=y, class_=kind, **attributes)


def tip(text: str) -> str:
    """Return the tooltip of an element."""
    return element("title", _text(text))


def rectangle(x: float, y: float, width: float, height: float, kind: str, tooltip: str = "") -> str:
    """Return a filled rectangle."""
    inside = (tip(tooltip),) if tooltip else ()
    return element("rect", *inside, x=x, y=y, width=width, height=height, class_=kind)


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    """Return a grid line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_="grid")


def curve(points: Sequence[Point], kind: str) -> str:
    """Return a line through the points."""
    return element("polyline", points=_points(points), class_=f"curve {kind}")


def band(upper: Sequence[Point], lower: Sequence[Point], kind: str) -> str:
    """Return the area between two lines in a pale colour."""
    return element("polygon", points=_points([*upper, *reversed(lower)]), class_=f"band {kind}")


def _points(points: Iterable[Point]) -> str:
    return " ".join(f"{number(x)},{number(y)}" for x, y in points)


def group(*children: str, x: float = 0, y: float = 0) -> str:
    """Return the elements as one group, moved by ``x`` and ``y``."""
    return element("g", *children, transform=f"translate({number(x)} {number(y)})")


def document(width: float, height: float, title: str, *children: str) -> str:
    """Return the text of a whole SVG file."""
    whole = element(
        "svg",
        tip(title),
        element("style", _style()),
        rectangle(0, 0, width, height, "ground"),
        *children,
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
    )
    return whole + "\n"


def _style() -> str:
    def colours(place: int) -> str:
        return (
            "".join(
                f".{name}{{fill:{shades[place]}}}.curve.{name}{{fill:none;stroke:{shades[place]}}}"
                for name, shades in PALETTE.items()
            )
            + f".grid{{stroke:{PALETTE['line'][place]}}}"
        )

    return (
        "text{font:12px system-ui,sans-serif}.heading{font-weight:600;font-size:15px}"
        ".curve{stroke-width:1.5}.band{opacity:.25}"
        f"{colours(0)}@media(prefers-color-scheme:dark){{{colours(1)}}}"
    )


@dataclass(frozen=True)
class Scale:
    """A linear map from values in ``[low, high]`` to places from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the place of a value; values out of range are clamped."""
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


def round_steps(most: float, count: int = 4) -> list[float]:
    """Return about ``count`` round values from 0 for an axis; the last is at least ``most``."""
    if most <= 0:
        return [0.0, 1.0]
    magnitude = 1.0
    while magnitude * count < most:
        magnitude *= 10
    while magnitude * count >= most * 10:
        magnitude /= 10
    step = next(m for m in (0.1, 0.2, 0.25, 0.5, 1.0) if m * magnitude * count >= most * 0.999999)
    step *= magnitude
    steps = [0.0]
    while steps[-1] < most * 0.999999:
        steps.append(round(step * len(steps), 9))
    return steps
