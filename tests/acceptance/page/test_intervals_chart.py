"""The chart of a run's intervals in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.page_opened import opened

if TYPE_CHECKING:
    from tests.support.page_stand_in import StandIn

pytestmark = pytest.mark.timeout(40)

_SHOWN = """
Promise.all([import('/web/drawer.js'), fetch('/v1/runs/%s').then((told) => told.json())])
    .then(([drawer, run]) => {
        const interval = (number) => ({
            number, starts_at: new Date(Date.parse(run.starts_at) + 60000 * number).toISOString(),
            result: number === 7 ? null : {}, summary: `${number} ms`,
            reason: number === 7 ? 'no report' : null,
            metrics: number === 7 ? [] :
                [{name: 'delay_median_ms', value: number, unit: 'ms', labels: {}}],
        });
        const intervals = Array.from({length: 30}, (_, number) => interval(29 - number));
        drawer.showRun(run, {}, {course: [], intervals}, Date.now());
        const svg = document.querySelector('#drawer .chart svg[role=group]');
        const count = (which) => svg.querySelectorAll(which).length;
        return [count('.dot'), count('path:not(.cross)'),
            svg.querySelector('.cross').parentNode.textContent, svg.getAttribute('aria-label'),
            [...document.querySelectorAll('#drawer .parts .part')]
                .filter((each) => / ms$/.test(each.textContent)).length];
    })
"""


async def test_intervals_have_a_chart(browser: str, ordinary: StandIn) -> None:
    """The chart has all intervals, with a break at a gap, and the last ones are listed."""
    run = next(run for run in ordinary.runs.values() if run.state == "finished")
    async with opened(browser, ordinary) as page:
        dots, lines, cause, label, listed = await page.evaluate(_SHOWN % run.id)
        assert (dots, lines, listed) == (29, 2, 20)
        assert "no report" in cause
        assert label.startswith("delay median of 29 intervals, 1 without it")
