"""The report as a drawing: every panel shows the figures of the report."""

from __future__ import annotations

from functools import cache
from xml.etree import ElementTree as ET

import pytest

from lead.simulation.drawing import WIDTH, draw_report
from lead.simulation.report import Report
from lead.simulation.scenario import parsed_scenario
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
def report_of_world(world: str = WORLD) -> Report:
    """Return the report of a small world that has too little time for all runs."""
    return simulate(parsed_scenario(world, ".toml"))


def panel(report: Report, heading: str) -> ET.Element:
    """Return the part of the drawing whose heading begins with ``heading``."""
    root = ET.fromstring(draw_report(report))
    [part] = [
        group
        for group in root.findall(f"{_SVG}g")
        if (group.findtext(f"{_SVG}text") or "").startswith(heading)
    ]
    return part


def areas(part: ET.Element, kind: str) -> list[float]:
    """Return the heights of the rectangles of a colour, without the one in the legend."""
    rectangles = part.iter(f"{_SVG}rect")
    heights = [float(r.attrib["height"]) for r in rectangles if r.attrib["class"] == kind]
    return [height for height in heights if height != 10]


def test_delivered_and_lost_runs_are_as_high_as_they_are_many() -> None:
    """The areas of delivered and lost runs are proportional to their numbers in each period."""
    report = report_of_world()
    part = panel(report, "Runs promised")
    delivered = [p.delivered for p in report.over_time.periods if p.delivered]
    lost = [n for p in report.over_time.periods for n in p.not_delivered.values()]
    assert lost
    good, late = areas(part, "good"), areas(part, "late")
    assert (len(good), len(late)) == (len(delivered), len(lost))
    unit = good[0] / delivered[0]
    for height, count in zip([*good, *late], [*delivered, *lost], strict=True):
        assert height == pytest.approx(count * unit, abs=0.02)


@pytest.mark.nightly
def test_what_is_drawn_over_time_is_all_that_was_promised() -> None:
    """The periods and the waiting times add up to the totals of the report."""
    report = report_of_world()
    periods = report.over_time.periods
    assert sum(p.promised for p in periods) == report.promised > 0
    assert sum(p.delivered for p in periods) == report.delivered
    assert report.waiting is not None
    assert sum(report.waiting.runs) == report.delivered


def test_each_reason_is_written_with_its_count() -> None:
    """The drawing lists each reason with its number of slots."""
    report = report_of_world()
    words = [text.text for text in panel(report, "Why not").iter(f"{_SVG}text")]
    for reason in report.not_delivered:
        assert f"{reason.slots:,}" in words
        assert f"{reason.state}: {reason.reason}" in words


def test_each_class_has_a_line_and_a_bar_for_each_node() -> None:
    """Each class has a line over all periods, and each node has a bar."""
    report = report_of_world()
    over_time = panel(report, "How full the nodes were")
    lines = [curve.attrib["points"].split() for curve in over_time.iter(f"{_SVG}polyline")]
    assert [len(line) for line in lines] == [len(report.over_time.periods)] * 2
    assert len(list(over_time.iter(f"{_SVG}polygon"))) == 2
    each = panel(report, "How full each node was")
    assert len(areas(each, "strong")) == report.nodes


@pytest.mark.nightly
def test_each_pair_has_a_cell() -> None:
    """Each pair has a cell with its figures in a tooltip."""
    report = report_of_world()
    part = panel(report, "Delivery by pair")
    assert report.pairs is not None
    cells = [r.findtext(f"{_SVG}title") for r in part.iter(f"{_SVG}rect") if len(r)]
    assert len(cells) == len(report.pairs.cells) == 3
    first = report.pairs.cells[0]
    assert (cells[0] or "").startswith(f"n1 and n2: {first.delivered} of {first.promised}, ")


def test_panels_lie_below_each_other_within_the_drawing() -> None:
    """No panel covers another one or leaves the file."""
    root = ET.fromstring(draw_report(report_of_world()))
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
    """The drawing of a world without tasks consists of its summary."""
    empty = report_of_world("days = 0.01\n[nodes]\ncount = 2\n")
    root = ET.fromstring(draw_report(empty))
    assert len(root.findall(f"{_SVG}g")) == 1


def test_the_same_report_is_the_same_drawing() -> None:
    """A report gives the same drawing byte for byte after a round trip through JSON."""
    assert draw_report(report_of_world()) == draw_report(
        Report.model_validate_json(report_of_world().model_dump_json())
    )
