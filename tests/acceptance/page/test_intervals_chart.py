"""The chart of a run's intervals in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.page_opened import opened

if TYPE_CHECKING:
    from tests.support.page_stand_in import StandIn

pytestmark = pytest.mark.timeout(40)

_SHOWN = """
Promise.all([import('/web/drawer.js'), import('/web/chart.js'), import('/web/figures.js'),
        fetch('/v1/runs/%s').then((told) => told.json())])
    .then(([drawer, chart, figures, run]) => {
        const interval = (number) => ({
            number, starts_at: new Date(Date.parse(run.starts_at) + 60000 * number).toISOString(),
            result: number === 17 ? null : {}, summary: number === 17 ? null : `${number} ms`,
            reason: number === 17 ? 'no report' : null,
            metrics: number === 17 ? [] :
                [{name: 'delay_median_ms', value: number, unit: 'ms', labels: {}}],
        });
        const intervals = Array.from({length: 30}, (_, number) => interval(29 - number));
        drawer.showRun(run, {}, {course: [], intervals}, Date.now());
        const measured = chart.intervalsMeasured(intervals, run)
            .map((each) => ({ ...each, way: '' }));
        const [line] = figures.courseOf(measured, 'delay_median_ms').lines;
        const cuts = line.values.flatMap((value, number) => (value === null ? [number] : []));
        const figure = '#drawer .chart:has(option[value=delay_median_ms])';
        const shown = () => {
            const canvas = document.querySelector(`${figure} canvas`);
            if (!canvas) return new Promise(requestAnimationFrame).then(shown);
            const caption = document.querySelector(`${figure} figcaption`).textContent;
            const legend = document.querySelector(`${figure} .u-legend tbody`).innerText;
            const listed = [...document.querySelectorAll('#drawer .parts .part')]
                .map((each) => each.innerText).filter((text) => / ms$|no report/.test(text));
            return [canvas.ariaLabel, caption, legend, cuts, listed];
        };
        return shown();
    })
"""


@pytest.mark.nightly
async def test_intervals_have_a_chart(browser: str, ordinary: StandIn) -> None:
    """The chart has all intervals, with a break at a gap, and the last ones are listed."""
    run = next(run for run in ordinary.runs.values() if run.state == "finished")
    async with opened(browser, ordinary) as page:
        label, counted, legend, cuts, listed = await page.evaluate(_SHOWN % run.id)
        assert label.startswith("delay median of 29 intervals, 1 without it")
        assert counted == "29 intervals, 1 without it: \u00d7 failed, \u2022 missed"
        assert all(value in legend for value in ("0 ms", "14.4 ms", "29 ms"))
        assert cuts == [17]
        assert len(listed) == 20
        assert sum("no report" in text for text in listed) == 1
