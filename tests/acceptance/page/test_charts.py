"""The charts of the page in a real browser."""

from __future__ import annotations

import pytest

from tests.support import page_scene as scene
from tests.support.page_opened import DRAWN, opened
from tests.support.page_stand_in import StandIn

pytestmark = pytest.mark.timeout(40)


async def test_draws_the_course_of_a_task(browser: str, ordinary: StandIn) -> None:
    """The figures of a task's runs are plotted with least, mean and last value, and counted."""
    failed = ordinary.runs[scene.the_failed(ordinary)]
    states = [run.state for run in ordinary.runs.values() if run.task == failed.task]
    finished = states.count("finished")
    without = sum(states.count(state) for state in ("failed", "missed", "unplaced"))
    label = "document.querySelector('#course canvas').ariaLabel"
    async with opened(browser, ordinary, f"#task={failed.task}") as page:
        told = f"throughput of {finished} runs, {without} without it"
        await page.until(f"{label}.startsWith('{told}')")
        legend = await page.text("#course .u-legend")
        assert all(word in legend for word in ("Min", "Mean", "Last", "Mb/s"))
        await page.evaluate(
            "(s => { s.value = 'retransmits'; s.dispatchEvent(new Event('change')); })"
            "(document.querySelector('#course select'))"
        )
        await page.until(f"{label}.startsWith('retransmits')")
        assert "segments" in await page.text("#course .u-legend")
        assert f"{without} without it: \u00d7 failed" in await page.text("#course figcaption")
        assert page.complaints() == []


@pytest.mark.nightly
async def test_a_run_stands_in_its_course(browser: str, ordinary: StandIn) -> None:
    """The drawer of a run has the chart of its task, where a click opens another run."""
    async with opened(browser, ordinary) as page:
        await page.until(DRAWN)
        await page.click("#last tr.done td.outcome")
        await page.until("document.querySelector('#drawer[open] .chart canvas')")
        before = await page.evaluate("location.hash")
        await page.click("#drawer .u-over")
        await page.until(f"location.hash !== '{before}'")


@pytest.mark.nightly
async def test_a_latency_run_has_a_histogram(browser: str, ordinary: StandIn) -> None:
    """The drawer of a latency run draws how many packets took how long, in both directions."""
    run = next(
        run
        for run in ordinary.runs.values()
        if (run.test, run.state) == ("latency", "finished") and run.participants[0] == "a.example"
    )
    buckets = {"width_ms": 0.5, "buckets": [[20, 3], [21, 90], [40, 7]]}
    result = {"histogram": {"forward": buckets, "backward": buckets, "round_trip": buckets}}
    ordinary.runs[run.id] = run.model_copy(update={"result": result})
    async with opened(browser, ordinary, f"#run={run.id}") as page:
        label = "document.querySelector('#drawer .plot canvas').ariaLabel"
        way = "a.example \u2192 b.example, b.example \u2192 a.example"
        await page.until(f"{label} === 'Packets by delay, {way}'")


async def test_a_course_has_a_line_for_each_direction(browser: str) -> None:
    """Two tasks that measure both ways give each direction one line, cut where nothing came."""
    async with opened(browser, StandIn()) as page:
        course, texts = await page.evaluate(
            """import('/web/figures.js').then((f) => {
                const metric = (direction, value) =>
                    ({ name: 'delay_ms', value, unit: 'ms', labels: { direction } });
                const run = (starts, between, ...metrics) =>
                    ({ starts, between, way: between.join(' → '), metrics });
                const both = (there, back) => [metric('forward', there), metric('backward', back),
                    metric('round_trip', there + back)];
                const runs = [run(1000, ['a', 'b'], ...both(1, 2)),
                    run(2000, ['b', 'a'], ...both(3, 4)), run(3000, ['a', 'b'])];
                const course = f.courseOf(runs, 'delay_ms');
                const lines = course.lines.map((line) => [line.title, line.isHidden, line.values]);
                const sum = f.summaryOf([3, null, undefined, 1]);
                return [[course.unit, lines, sum], [f.valueText(941300000, 'bit/s'),
                    f.valueText(0.0125, '1'), f.valueText(20.412, 'ms'),
                    f.valueText(12345, 'segments'), f.figureText(metric('forward', 1))]];
            })"""
        )
    lines = [
        ["a \u2192 b", False, [1, 4, None]],
        ["b \u2192 a", False, [2, 3, None]],
        ["round trip", True, [3, 7, None]],
    ]
    assert course == ["ms", lines, {"least": 1, "mean": 2, "last": 1}]
    texts_expected = ["941 Mb/s", "1.25 %", "20.4 ms", "12345 segments", "delay forward 1 ms"]
    assert texts == texts_expected
