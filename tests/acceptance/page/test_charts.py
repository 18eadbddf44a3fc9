"""The charts of the page in a real browser."""

from __future__ import annotations

import pytest

from tests.support import page_scene as scene
from tests.support.page_opened import DRAWN, opened
from tests.support.page_stand_in import StandIn

pytestmark = pytest.mark.timeout(40)


async def test_draws_the_course_of_a_task(browser: str, ordinary: StandIn) -> None:
    """The figures of a task's runs are drawn as a chart, with failed runs below."""
    failed = ordinary.runs[scene.the_failed(ordinary)]
    count = "document.querySelectorAll('#course .dot').length"
    async with opened(browser, ordinary, f"#task={failed.task}") as page:
        finished = sum(
            run.task == failed.task and run.state == "finished" for run in ordinary.runs.values()
        )
        without = sum(
            run.task == failed.task and run.state in {"failed", "missed", "unplaced"}
            for run in ordinary.runs.values()
        )
        await page.until(f"{count} === {finished}")
        assert "Mb/s" in await page.text("#course")
        titles = "[...document.querySelectorAll('#course a:has(.cross) title')]"
        assert scene.CAUSE in await page.evaluate(f"{titles}.map((e) => e.textContent).join()")
        await page.evaluate(
            "(s => { s.value = 'retransmits'; s.dispatchEvent(new Event('change')); })"
            "(document.querySelector('#course select'))"
        )
        assert "segments" in await page.text("#course")
        assert await page.text("#course .bad") == f"\u00d7 {without} without it"
        assert page.complaints() == []


async def test_a_run_stands_in_its_course(browser: str, ordinary: StandIn) -> None:
    """The drawer of a run shows it in the chart of its task, and a click opens another run."""
    async with opened(browser, ordinary) as page:
        await page.until(DRAWN)
        await page.click("#last tr.done td.outcome")
        await page.until("document.querySelectorAll('#drawer[open] .chart .shown').length === 1")
        before = await page.evaluate("location.hash")
        await page.evaluate(
            "document.querySelector('#drawer .dot').parentNode.dispatchEvent("
            "new MouseEvent('click', {bubbles: true, cancelable: true}))"
        )
        await page.until(f"location.hash !== '{before}'")


async def test_charts_have_round_ticks_and_units(browser: str) -> None:
    """Ticks are round and include all values, and lines break at runs without a figure."""
    async with opened(browser, StandIn()) as page:
        values = await page.evaluate(
            """import('/web/chart-layout.js').then((c) => {
                const figure = (value) => [{name: 'x_ms', value, unit: 'ms', labels: {}}];
                const run = (starts, ...values) =>
                    ({id: starts, starts, participants: ['a'], metrics: values.flatMap(figure)});
                const course = c.courseOf([run(3, 2), run(1, 1), run(2), run(4, 3)], 'x_ms');
                return [c.ticksOf([20.1, 23.9]), c.ticksOf([0.5, 97]), c.ticksOf([5]),
                    c.ticksOf([0]), c.ticksOf([]),
                    c.valueText(941300000, 'bit/s'), c.valueText(0.0125, '1'),
                    c.valueText(20.412, 'ms'), c.valueText(12345, 'segments'),
                    course.series[0].pieces.map((piece) => piece.length), course.bad.length];
            })"""
        )
        assert values == [
            [20, 21, 22, 23, 24],
            *([0, 50, 100], [4, 6], [0, 0.5], [0, 1]),
            *("941 Mb/s", "1.25 %", "20.4 ms", "12345 segments", [1, 2], 1),
        ]
