"""The writer of SVG: its output is valid XML with readable colours."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.simulation.svg import (
    PALETTE,
    Scale,
    document,
    element,
    label,
    number,
    rectangle,
    round_steps,
    tip,
)

_SVG = "{http://www.w3.org/2000/svg}"
_TEXT = 4.5
_AREA = 3.0


def luminance(colour: str) -> float:
    """Return the relative luminance (WCAG 2.2) of ``#rrggbb``."""
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    """Return the contrast (WCAG 2.2), from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@given(st.text())
def test_any_text_is_read_back(text: str) -> None:
    """Any text is read back from the file, with characters that XML forbids replaced."""
    drawn = document(10, 10, text, label(1, 2, text, "ink"), rectangle(0, 0, 1, 1, "bad", text))
    root = ET.fromstring(drawn)
    texts = [root.findtext(f"{_SVG}title"), root.findtext(f"{_SVG}text")]
    for read in texts:
        assert len(read or "") == len(text.replace("\r\n", "\n"))
        assert all(a == b or not b.isprintable() for a, b in zip(read or "", text, strict=False))


@given(st.text(max_size=20))
def test_an_attribute_cannot_be_left(text: str) -> None:
    """A quote or a bracket in an attribute's value stays in the value."""
    plain = "".join(letter for letter in text if letter.isprintable())
    root = ET.fromstring(element("g", tip("x"), class_=plain))
    assert root.attrib == {"class": plain}


@given(st.floats(-1e6, 1e6))
def test_numbers_are_short_and_right(value: float) -> None:
    """A number has at most two decimals, no exponent, and no minus zero."""
    text = number(value)
    assert abs(float(text) - value) <= 0.005 + 1e-9
    assert "e" not in text
    assert text != "-0"
    assert len(text.partition(".")[2]) <= 2


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("name", [name for name in PALETTE if name not in {"ground", "line"}])
def test_colours_can_be_told_from_the_ground(name: str, place: int) -> None:
    """Text and areas have enough contrast in the light and in the dark theme."""
    needed = _TEXT if name in {"ink", "muted"} else _AREA
    assert contrast(PALETTE[name][place], PALETTE["ground"][place]) >= needed


def test_dark_surroundings_have_colours_of_their_own() -> None:
    """Every colour has a value of its own in the dark theme."""
    style = ET.fromstring(document(10, 10, "x")).findtext(f"{_SVG}style") or ""
    light, _, dark = style.partition("@media(prefers-color-scheme:dark)")
    for name, (on_light, on_dark) in PALETTE.items():
        assert on_light in light, name
        assert on_dark in dark, name


@given(st.floats(1e-3, 1e9))
def test_an_axis_has_few_round_steps(most: float) -> None:
    """An axis has up to six equal round steps from 0 to just beyond the maximum."""
    steps = round_steps(most)
    assert steps[0] == 0
    assert steps[-2] < most <= steps[-1] * 1.00001
    assert 2 <= len(steps) <= 6
    gaps = [b - a for a, b in pairwise(steps)]
    assert max(gaps) - min(gaps) <= 1e-6 * steps[-1]


def test_an_axis_of_nothing_has_steps_too() -> None:
    """The axis of a maximum of 0 goes from 0 to 1."""
    assert round_steps(0) == [0, 1]


@given(st.floats(0, 100), st.floats(-50, 150))
def test_a_scale_keeps_within_its_ends(high: float, value: float) -> None:
    """A scale maps the low value to its start, the high one to its end, and clamps the rest."""
    scale = Scale(0, high, 200, 50)
    assert 50 <= scale(value) <= 200
    assert scale(0) == 200
    assert scale(high) == (50 if high else 200)
