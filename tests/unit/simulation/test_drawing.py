"""The report as a drawing: every panel shows the figures of the report."""

from __future__ import annotations

from functools import cache
from xml.etree import ElementTree as ET

import pytest

from lead.simulation.drawing import WIDTH, draw_report
from lead.simulation.report import Report
from lead.simulation.scenario import parsed
from lead.simulation.world import simulate

_SVG = "{http://www.w3.org/2000/svg}"

WORLD = """
title = "three <nodes> & a crowd"
days = 0.02
[nodes]
count = 3
horizon = "PT30M"
[[tasks]]
length = "PT2M"
every = "PT5M"
slip = "PT1M"
[[tasks]]
class = "background"
between = "alone"
count = 2
length = "PT30S"
every = "PT5M"
"""


@cache
def told(world: str = WORLD) -> Report:
    """The report of a small world in which there is not time enough for all."""
    return simulate(parsed(world, ".toml"))


def panel(report: Report, heading: str) -> ET.Element:
    """The part of the drawing that begins with these words."""
    root = ET.fromstring(draw_report(report))
    [found] = [
        group
        for group in root.findall(f"{_SVG}g")
        if (group.findtext(f"{_SVG}text") or "").startswith(heading)
    ]
    return found


def areas(part: ET.Element, kind: str) -> list[float]:
    """The heights of the rectangles of a colour, but for that in the legend."""
    found = part.iter(f"{_SVG}rect")
    heights = [float(r.attrib["height"]) for r in found if r.attrib["class"] == kind]
    return [height for height in heights if height != 10]


def test_delivered_and_lost_runs_are_as_high_as_they_are_many() -> None:
    """In each period, on one scale; what nobody lost has no area."""
    report = told()
    part = panel(report, "Runs promised")
    delivered = [p.delivered for p in report.over_time.periods if p.delivered]
    lost = [n for p in report.over_time.periods for n in p.not_delivered.values()]
    assert lost
    good, late = areas(part, "good"), areas(part, "late")
    assert (len(good), len(late)) == (len(delivered), len(lost))
    unit = good[0] / delivered[0]
    for height, count in zip([*good, *late], [*delivered, *lost], strict=True):
        assert height == pytest.approx(count * unit, abs=0.02)


def test_what_is_drawn_over_time_is_all_that_was_promised() -> None:
    """The periods add up to the totals of the report."""
    report = told()
    periods = report.over_time.periods
    assert sum(p.promised for p in periods) == report.promised > 0
    assert sum(p.delivered for p in periods) == report.delivered
    assert report.waiting is not None
    assert sum(report.waiting.runs) == report.delivered


def test_each_reason_is_written_with_its_count() -> None:
    """The most frequent first."""
    report = told()
    words = [text.text for text in panel(report, "Why not").iter(f"{_SVG}text")]
    for reason in report.not_delivered:
        assert f"{reason.slots:,}" in words
        assert f"{reason.state}: {reason.reason}" in words


def test_each_class_has_a_line_and_a_bar_for_each_node() -> None:
    """Between the least and the fullest, over the whole width."""
    report = told()
    over_time = panel(report, "How full the nodes were")
    lines = [curve.attrib["points"].split() for curve in over_time.iter(f"{_SVG}polyline")]
    assert [len(line) for line in lines] == [len(report.over_time.periods)] * 2
    assert len(list(over_time.iter(f"{_SVG}polygon"))) == 2
    each = panel(report, "How full each node was")
    assert len(areas(each, "strong")) == report.nodes


def test_each_pair_has_a_cell() -> None:
    """With its figures for who points at it."""
    report = told()
    part = panel(report, "Delivery by pair")
    assert report.pairs is not None
    cells = [r.findtext(f"{_SVG}title") for r in part.iter(f"{_SVG}rect") if len(r)]
    assert len(cells) == len(report.pairs.cells) == 3
    first = report.pairs.cells[0]
    assert (cells[0] or "").startswith(f"n1 and n2: {first.delivered} of {first.promised}, ")


def test_panels_lie_below_each_other_within_the_drawing() -> None:
    """None covers another, none leaves the file."""
    root = ET.fromstring(draw_report(told()))
    tops = [float(g.attrib["transform"].split()[1].rstrip(")")) for g in root.findall(f"{_SVG}g")]
    assert tops == sorted(set(tops))
    assert len(tops) == 7
    assert tops[-1] < float(root.attrib["height"])
    edges = [
        float(r.attrib["x"]) + float(r.attrib["width"]) for r in root.iter(f"{_SVG}rect") if len(r)
    ]
    assert max(edges) <= WIDTH
    assert root.findtext(f"{_SVG}title") == "three <nodes> & a crowd"


def test_nothing_is_drawn_of_what_there_is_not() -> None:
    """A world in which nobody wants anything has its summary."""
    empty = told("days = 0.01\n[nodes]\ncount = 2\n")
    root = ET.fromstring(draw_report(empty))
    assert len(root.findall(f"{_SVG}g")) == 1


def test_the_same_report_is_the_same_drawing() -> None:
    """Byte for byte."""
    assert draw_report(told()) == draw_report(Report.model_validate_json(told().model_dump_json()))
