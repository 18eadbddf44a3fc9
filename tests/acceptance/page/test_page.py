"""The page in a real browser, over a stand-in that serves real wire documents."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from uuid import UUID

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from node.api.page import static_files
from node.cli.times import with_local_times
from node.model import times
from node.model.headline import headline
from node.model.verdict import Level
from node.model.wire.problems import Problem
from node.model.wire.reservations import Purpose, ReservedSpan
from node.model.wire.status import Attention
from tests.support import page_scene as scene
from tests.support.browser import Page
from tests.support.page_opened import DRAWN, LIVE, TASKS, opened
from tests.support.page_stand_in import NOW, StandIn
from tests.support.patience import PATIENCE_S

CONTRAST = Path(__file__).parents[2] / "contrast.js"

pytestmark = pytest.mark.timeout(40)


@pytest.mark.nightly
async def test_shows_what_the_node_knows(browser: str, ordinary: StandIn) -> None:
    """The page shows now, next, last and tasks with routes, results and local times."""
    async with opened(browser, ordinary) as page:
        await page.until(f"{DRAWN} && {LIVE} && document.querySelector('#nodes li')")
        await page.until(
            "document.querySelector('#now table') && document.querySelector('#next table')"
        )
        assert "a.example → 198.51.100.7" in await page.text("#now")
        assert "waiting" in await page.text("#next")
        assert "20.41 ms, loss 0 %" in await page.text("#last")
        assert "lab-7.campus.example unreachable since 12:53:00" in await page.text("#nodes")
        assert (await page.text("#clock")).startswith("13:00:")
        title = await page.evaluate("document.querySelector('#last time').title")
        assert title == "2026-12-01T11:56:00Z"
        await page.evaluate("location.hash = 'view=tasks'")
        await page.until(TASKS)
        assert "cron */20 * * * * (Europe/Berlin)" in await page.text("#tasks")
        assert page.complaints() == []


@pytest.mark.nightly
async def test_shows_pool_tasks_with_their_seats(browser: str, ordinary: StandIn) -> None:
    """A pool task shows its taken seats, why others are empty, and the runs of its seats."""
    scene.with_seats(ordinary)
    whole = next(task for task in ordinary.tasks.values() if task.pool is not None)
    async with opened(browser, ordinary, "#view=tasks") as page:
        await page.until(f"{TASKS} && {LIVE}")
        tasks = await page.text("#tasks")
        assert "3 nodes of europe → 203.0.113.9" in tasks
        assert "2 of 3 seats taken" in tasks
        assert tasks.index("busy with an exclusive throughput run") < tasks.index("2 of 3 seats")
        await page.click(f"#tasks a[href='#task={whole.id}']")
        named = "document.querySelector('#filter-name').textContent"
        await page.until(f"{named}.includes('3 nodes of europe')")
        await page.until("document.querySelector('#last').innerText.includes('c.example → 203')")
        assert "throughput" not in await page.text("#last")
        assert page.complaints() == []


@pytest.mark.nightly
async def test_says_why_in_the_list(browser: str, ordinary: StandIn) -> None:
    """A failed run shows its cause in its row, with a word and an icon besides the colour."""
    async with opened(browser, ordinary) as page:
        await page.until(DRAWN)
        row = await page.text("#last tr.failed")
        assert row.index("failed") < row.index(scene.CAUSE) < row.index("throughput")
        assert await page.evaluate("Boolean(document.querySelector('#last tr.failed .state svg'))")
        assert "took its time; planned again" in await page.text("#last tr.gone")
        assert "b.example is busy with exclusive runs" in await page.text("#next")
        await page.evaluate("location.hash = 'view=tasks'")
        await page.until(TASKS)
        assert "install the package iperf3 there" in await page.text("#tasks tr.failed")


@pytest.mark.nightly
async def test_marks_what_is_not_to_be_trusted(browser: str, ordinary: StandIn) -> None:
    """A contaminated result is marked in its row, with the reasons in the drawer."""
    done = [run for run in ordinary.runs.values() if run.state == "finished"]
    newest = max(done, key=lambda run: run.starts_at)
    for run in done:
        level = Level.CONTAMINATED if run is newest else Level.CLEAN
        reasons = ("b sent 212 Mb/s", "it was late") if run is newest else ()
        update = {"verdict": level, "verdict_reasons": reasons}
        ordinary.runs[run.id] = run.model_copy(update=update)
    async with opened(browser, ordinary) as page:
        await page.until(f"{DRAWN} && {LIVE}")
        marks = "[...document.querySelectorAll('#last .doubt')].map((mark) => mark.textContent)"
        assert await page.evaluate(marks) == ["contaminated: b sent 212 Mb/s"]
    async with opened(browser, ordinary, f"#run={newest.id}") as page:
        await page.until("document.querySelector('#drawer-body .trust')")
        assert "it was late" in await page.text("#drawer-body .trust")


async def test_follows_the_event_stream(browser: str, ordinary: StandIn) -> None:
    """An event adds a new result to the list without a reload, and announces a failure."""
    async with opened(browser, ordinary) as page:
        await page.until(f"{DRAWN} && {LIVE}")
        await page.evaluate("window.sameDocument = true")
        running = next(run for run in ordinary.runs.values() if run.state == "running")
        update = {"state": "failed", "reason": "b.example stopped answering"}
        await ordinary.put(running.model_copy(update=update))
        await page.until("document.querySelector('#last').innerText.includes('stopped answering')")
        await page.until(
            "document.querySelector('#announcer').innerText.includes('stopped answering')"
        )
        await page.until("document.querySelector('#count-failed').innerText.startsWith('2')")
        assert await page.evaluate("window.sameDocument")


@pytest.mark.nightly
async def test_many_events_cost_few_requests(browser: str, ordinary: StandIn) -> None:
    """Two hundred events at once lead to a handful of requests, not to two hundred."""
    async with opened(browser, ordinary) as page:
        await page.until(f"{DRAWN} && {LIVE}")
        before = len(ordinary.requests)
        runs = [run for run in ordinary.runs.values() if run.state == "scheduled"][:200]
        cancelled = {"state": "cancelled", "reason": "its task was cancelled by ops"}
        await ordinary.put(*(run.model_copy(update=cancelled) for run in runs))
        due = sum(
            run.state in {"scheduled", "waiting"} and NOW <= run.starts_at < NOW + times.HOUR
            for run in ordinary.runs.values()
        )
        await page.until(f"document.querySelector('#count-due').innerText === '{due}'")
        assert len(ordinary.requests) - before < 25


@pytest.mark.nightly
async def test_a_schedule_of_many_pages_is_shown_whole(browser: str, ordinary: StandIn) -> None:
    """The timeline and its counts have the runs of all pages of the schedule."""
    ordinary.schedule_page = 40
    due = sum(
        run.state in {"scheduled", "waiting"} and NOW <= run.starts_at < NOW + times.HOUR
        for run in ordinary.runs.values()
    )
    async with opened(browser, ordinary) as page:
        await page.until(f"{DRAWN} && {LIVE}")
        await page.until(f"document.querySelector('#count-due').innerText === '{due}'")
        asked = "performance.getEntriesByType('resource').map(({ name }) => name)"
        await page.until(f"{asked}.some((name) => name.includes('cursor='))")
        assert page.complaints() == []


@pytest.mark.nightly
async def test_comes_back_after_a_break(browser: str, ordinary: StandIn) -> None:
    """A broken stream is shown, resumed from the last event, and missed changes are fetched."""
    async with opened(browser, ordinary) as page:
        await page.until(f"{DRAWN} && {LIVE}")
        waiting = next(run for run in ordinary.runs.values() if run.state == "waiting")
        await ordinary.put(waiting.model_copy(update={"reason": "still nothing on b.example"}))
        await page.until("document.querySelector('#next').innerText.includes('still nothing')")
        ordinary.cut()
        await page.until("!document.getElementById('notice').hidden")
        assert "No connection to the node since 13:00:" in await page.text("#notice")
        update = {
            "state": "unplaced",
            "reason": "no window was free on b.example",
            "starts_at": NOW,
        }
        ordinary.runs[waiting.id] = waiting.model_copy(update=update)
        ordinary.come_back()
        await page.until("document.querySelector('#last').innerText.includes('no window was free')")
        await page.until("document.getElementById('notice').hidden")
        assert (ordinary.resumed[0], ordinary.resumed[-1]) == ("", "1")


@pytest.mark.nightly
async def test_drawer_by_click(browser: str, ordinary: StandIn) -> None:
    """A click on a row opens the run with its parts, their output, and the decisions."""
    async with opened(browser, ordinary) as page:
        await page.until(DRAWN)
        await page.click("#last tr.failed td.outcome")
        await page.until("document.querySelector('#drawer[open] .parts')")
        shown = await page.text("#drawer")
        for words in (scene.CAUSE, "0.31 ms", "the server part never came up", "iperf3 --server"):
            assert words in shown
        assert "72 of 72 windows placed" in shown
        busy = "document.querySelector('.trace .busy title').textContent"
        assert await page.evaluate(busy) == "exclusive throughput, priority 5, 8 min"
        lanes = "document.querySelector('.trace').ariaLabel"
        assert "a.example: nothing in the way. b.example: excl" in await page.evaluate(lanes)
        assert await page.evaluate(f"location.hash === '#run={scene.the_failed(ordinary)}'")
        assert page.complaints() == []


@pytest.mark.nightly
async def test_drawer_by_keyboard(browser: str, ordinary: StandIn) -> None:
    """Enter on a run's link opens it, and Escape closes it and returns the focus to the link."""
    async with opened(browser, ordinary) as page:
        await page.until(DRAWN)
        link = "document.querySelector('#last tr.done a')"
        await page.evaluate(f"{link}.focus()")
        await page.press("Enter")
        await page.until("document.querySelector('#drawer[open] .tree')")
        await page.press("Escape")
        await page.until(
            "!document.querySelector('#drawer').open && !location.hash.includes('run')"
        )
        await page.until(f"document.activeElement === {link}")


@pytest.mark.nightly
async def test_timeline_by_keyboard(browser: str, ordinary: StandIn) -> None:
    """The arrow keys move from run to run on the timeline, and Enter opens the selected one."""
    async with opened(browser, ordinary) as page:
        await page.until(DRAWN)
        await page.evaluate("document.getElementById('canvas').focus()")
        await page.press("ArrowLeft")
        await page.until("!document.getElementById('tip').hidden")
        first = await page.text("#tip")
        await page.press("ArrowLeft")
        assert await page.text("#tip") != first
        await page.press("Enter")
        await page.until("document.querySelector('#drawer[open] .facts')")


@pytest.mark.nightly
async def test_timeline_by_mouse(browser: str, ordinary: StandIn) -> None:
    """Pointing at a bar shows the run with its reason, and a click opens it."""
    async with opened(browser, ordinary) as page:
        await page.until(DRAWN)
        started = ordinary.runs[scene.the_failed(ordinary)].starts_at
        share = (started + times.MINUTE - (NOW - times.HOUR)) / (7 * times.HOUR)
        await click_timeline(page, share, 36)
        await page.until("document.querySelector('#drawer[open] .parts')")
        assert scene.CAUSE in await page.text("#drawer")
        assert scene.CAUSE in await page.text("#tip")


@pytest.mark.nightly
async def test_waiting_looks_unlike_scheduled(browser: str, ordinary: StandIn) -> None:
    """A run without a time covers less of the timeline than one that is booked."""
    covered = """Promise.all(['layout', 'paint'].map((it) => import(`/web/timeline-${it}.js`)))
        .then(([{ layOut }, { paint, readTheme }]) => ['scheduled', 'waiting'].map((state) => {
            const kind = { scheduled: 'future', waiting: 'waiting' }[state];
            const canvas = document.getElementById('canvas').cloneNode();
            document.getElementById('stage').append(canvas);
            Object.assign(canvas, { width: 400, height: 200 });
            const view = { from: 0, to: 100, left: 0, right: 400, top: 0, caption: 0 };
            const entry = { id: 'x', lane: 'normal', starts: 10, ends: 90, state, kind };
            const scene = { ...layOut([entry], [], new Map(), view), view, ticks: [], now: -50 };
            const draw = (boxes) => {
                const size = { width: 400, height: 200, density: 1, nowText: '' };
                paint(canvas, { ...scene, ...size, boxes }, readTheme(canvas, 1));
                return canvas.getContext('2d').getImageData(60, 0, 280, 200).data;
            };
            const [there, away] = [draw(scene.boxes), draw(scene.boxes.slice(1))];
            canvas.remove();
            return there.filter((value, index) => value !== away[index]).length;
        }))"""
    async with opened(browser, ordinary) as page:
        await page.until(DRAWN)
        scheduled, waiting = await page.evaluate(covered)
    assert 0 < waiting < scheduled / 2


@pytest.mark.nightly
async def test_reserved_time_is_shown(browser: str, ordinary: StandIn) -> None:
    """Reserved time has its own lane above the others and a tip, and appears with an event."""
    label = "document.getElementById('canvas').ariaLabel"
    async with opened(browser, ordinary) as page:
        await page.until(f"{DRAWN} && {LIVE}")
        assert "reserved" not in await page.evaluate(label)
        made = ReservedSpan(
            reservation=UUID(int=7),
            kind=Purpose.DEMO,
            name="SC26",
            owner="alice",
            starts_at=NOW + times.HOUR,
            ends_at=NOW + 3 * times.HOUR,
        )
        ordinary.reserved.append(made)
        await ordinary.tell("reservation", {"id": str(made.reservation), "state": "made"})
        await page.until(f"{label}.endsWith(', 1 reserved time')")
        await click_timeline(page, 3 / 7, 36)
        await page.until("!document.getElementById('tip').hidden")
        assert "demo SC26 by alice" in await page.text("#tip")
        assert str(made.reservation) in await page.text("#tip")
        assert not await page.evaluate("document.querySelector('#drawer').open")
        assert page.complaints() == []


HIT = """new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))).then(
    () => !document.getElementById('tip').hidden || document.getElementById('drawer').open
)"""
"""A question whether the pointer is on something of the timeline, once that is drawn."""


async def click_timeline(page: Page, share: float, y: float) -> None:
    """Click on what is at a point of the timeline, again if that was just being drawn anew."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await page.click_at(*await timeline_point(page, share, y))
            if await page.evaluate(HIT):
                return


async def timeline_point(page: Page, share: float, y: float) -> tuple[float, float]:
    """Return a point of the timeline by the share of its span and the pixels from its top."""
    box = await page.evaluate(
        "(({x, y, width}) => [x, y, width])(document.all.canvas.getBoundingClientRect())"
    )
    size = await page.evaluate("parseFloat(getComputedStyle(document.documentElement).fontSize)")
    gutter = 124 * size / 16
    return box[0] + gutter + share * (box[2] - gutter), box[1] + y


async def test_filters_by_task(browser: str, ordinary: StandIn) -> None:
    """The link of a task shows only its runs, and the filter's link shows all again."""
    async with opened(browser, ordinary, "#view=tasks") as page:
        await page.until(TASKS)
        task = next(task for task in ordinary.tasks.values() if task.test.type == "idle")
        await page.click(f"#tasks a[href='#task={task.id}']")
        tests = "new Set([...document.querySelectorAll('#last .test')].map((e) => e.innerText))"
        await page.until(f"[...{tests}].join() === 'idle'")
        assert "Only runs of idle a.example, b.example, c.example" in await page.text("#filter")
        await page.click("#filter a")
        await page.until(f"{tests}.size > 1")


@pytest.mark.nightly
async def test_a_crowded_day_stays_smooth(browser: str) -> None:
    """Five thousand runs are drawn in columns, and a click on a column lists its runs."""
    crowded = StandIn()
    scene.crowded_day(crowded)
    async with opened(browser, crowded) as page:
        await page.until(DRAWN)
        await page.click("#spans button:last-child")
        await page.until("document.getElementById('canvas').ariaLabel.includes('4 h back and 1 d')")
        await page.until(
            r"Number(/(\d+) normal/.exec(document.getElementById('canvas').ariaLabel)[1]) > 4000"
        )
        await click_timeline(page, 1 / 14, 100)
        await page.until("document.querySelectorAll('#drawer[open] tbody tr').length > 5")
        assert re.match(r"\d+ normal runs, ", await page.text("#drawer-title"))
        assert page.complaints() == []


async def test_says_what_needs_attention(browser: str, ordinary: StandIn) -> None:
    """The overview tells what is wrong with the node, with the command, and refused tasks."""
    full = "the disk of /var/lib/parley is full"
    ordinary.attention = (Attention(subject="disk", what=full, command="df -h"),)
    async with opened(browser, ordinary) as page:
        await page.until("document.querySelectorAll('#health li').length === 2")
        health = await page.text("#health")
        assert f"{full} df -h" in health
        assert "refused: c.example has no tool for throughput" in health
    async with opened(browser, StandIn()) as page:
        await page.until("document.querySelector('#health .done')")
        assert "Nothing needs attention" in await page.text("#health")


@pytest.mark.nightly
async def test_campaigns_have_their_shares(browser: str, ordinary: StandIn) -> None:
    """Campaigns show promised and used shares, children below parents, and what waits and why."""
    async with opened(browser, ordinary, "#view=campaigns") as page:
        await page.until("document.querySelectorAll('#campaigns tbody tr').length === 5")
        names = await page.evaluate(
            "[...document.querySelectorAll('#campaigns .test')].map((each) => each.innerText)"
        )
        assert names == ["outage", "ops", "ops-lab", "default", "thesis"]
        campaigns = await page.text("#campaigns")
        assert "60 %, 20 seats for sure" in campaigns
        assert "55 % had" in campaigns
        assert "served first" in campaigns
        assert "4 runs of 1 task" in campaigns
        assert "b.example is busy with exclusive runs until 12:14:00" in campaigns
        marks = "document.querySelectorAll('#campaigns .mark').length"
        assert await page.evaluate(marks) == 8  # two bars of each that is promised a part
        assert page.complaints() == []


@pytest.mark.nightly
async def test_empty_states_say_what_to_do(browser: str) -> None:
    """The page of a node without tasks names the commands that create some."""
    async with opened(browser, StandIn()) as page:
        await page.until("document.querySelectorAll('.empty.settled').length === 3")
        assert "parley rtt HOST" in await page.text("#next")
        await page.until("document.getElementById('nodes').innerText.includes('parley node add')")
        commands = {"campaigns": "parley campaign add", "tasks": "parley task create"}
        for view, command in commands.items():
            await page.evaluate(f"location.hash = 'view={view}'")
            await page.until(f"document.querySelector('#{view} .empty.settled')")
            assert command in await page.text(f"#{view}")


async def test_errors_come_in_words(browser: str, ordinary: StandIn) -> None:
    """A problem document is shown as title and detail, and disappears when it is over."""
    ordinary.fault = Problem(
        type="x",
        title="The database cannot be reached",
        status=503,
        detail="Postgres is restarting",
    )
    async with opened(browser, ordinary) as page:
        await page.until(
            "document.getElementById('notice').innerText.includes('reached: Postgres')"
        )
        ordinary.fault = None
        await page.until(f"{DRAWN} && {LIVE} && document.getElementById('notice').hidden")


async def test_asks_for_a_token(browser: str, ordinary: StandIn) -> None:
    """If reading requires a token the page asks for it, also after a wrong one, and stores it."""
    ordinary.token = "let-me-in"
    async with opened(browser, ordinary) as page:
        for attempt, words in (
            ("wrong", "Reading requires a token"),
            ("let-me-in", "not valid for this node"),
        ):
            await page.until(f"document.querySelector('#ask[open]')?.innerText.includes('{words}')")
            await page.type(attempt)
            await page.press("Enter")
        await page.until(f"{DRAWN} && {LIVE} && !document.getElementById('ask').open")
        assert await page.evaluate("sessionStorage.getItem('parley-token')") == "let-me-in"
        assert "let-me-in" not in " ".join(ordinary.requests)


@pytest.mark.nightly
async def test_a_link_may_have_the_token(browser: str, ordinary: StandIn) -> None:
    """A link with a token logs the page in; the token leaves the address, and goes to no log."""
    ordinary.token = "let-me-in"
    async with opened(browser, ordinary, "#token=let-me-in") as page:
        await page.until(f"{DRAWN} && {LIVE} && !document.getElementById('ask').open")
        assert (await page.evaluate("location.href")).endswith("/")
        assert "let-me-in" not in " ".join(ordinary.requests)


async def test_texts_have_contrast(browser: str, ordinary: StandIn) -> None:
    """Every text colour has a contrast of at least 4.5 on its background (WCAG AA)."""
    async with opened(browser, ordinary) as page:
        await page.until(DRAWN)
        for dark in (False, True):
            await page.resize(1440, 900, dark=dark)
            assert await page.evaluate(CONTRAST.read_text()) == []


@pytest.mark.nightly
async def test_the_overview_fits_a_screen(browser: str, ordinary: StandIn) -> None:
    """With two warnings the overview fits 1440 by 900, and its lists fill what is left."""
    full = Attention(subject="disk", what="the disk of /var/lib/parley is full", command="df -h")
    ordinary.attention = (full,)  # a refused task is the other one
    async with opened(browser, ordinary) as page:
        await page.resize(1440, 900)
        await page.evaluate("location.reload()")
        await page.until(f"{DRAWN} && {LIVE} && document.querySelector('#next table')")
        await page.until("document.querySelectorAll('#health li').length === 2")
        await page.until("document.documentElement.scrollHeight <= 900")
        rows = await page.evaluate("document.querySelectorAll('#last tbody tr').length")
        assert rows >= 3


@pytest.mark.nightly
async def test_the_overview_fits_a_screen_with_long_warnings(
    browser: str, ordinary: StandIn
) -> None:
    """Three warnings of two lines each, and one more, leave room for what ran last and is next."""
    long = (
        "6 of 6 pairs since 11:26, its measurement address 192.0.2.4 answers nobody over TCP or "
        "UDP, but its node answers; nothing measured tells a fault of its link from one of its "
        "firewall, and no other host of its network is measured"
    )
    ordinary.attention = tuple(
        Attention(subject=name, what=f"{name}: {long}", command=f"parley doctor {name}")
        for name in ("c", "d", "e")  # a refused task is one more
    )
    async with opened(browser, ordinary) as page:
        await page.resize(1440, 900)
        await page.until("document.querySelectorAll('#health li').length === 3")
        assert await page.evaluate("document.getElementById('health').clientHeight > 100")
        assert "and 1 more" in await page.text("#health")
        await page.until(f"{DRAWN} && {LIVE} && document.querySelector('#next table')")
        await page.until("document.documentElement.scrollHeight <= 900")
        rows = "document.querySelectorAll('#{} tbody tr').length"
        assert await page.evaluate(rows.format("last")) >= 3
        assert await page.evaluate(rows.format("next")) >= 1


async def test_fits_a_phone(browser: str, ordinary: StandIn) -> None:
    """At the width of a phone nothing extends beyond the side."""
    async with opened(browser, ordinary) as page:
        await page.resize(360, 740)
        await page.until(DRAWN)
        assert await page.evaluate("document.documentElement.scrollWidth <= 360")


@pytest.mark.nightly
async def test_headlines_and_reasons_are_those_of_the_command(browser: str) -> None:
    """The page splits the headline that the API made, and writes times in reasons in words."""
    line = headline("rtt", ["a.example"], {"dest": "192.0.2.7"})
    reason = "no PT16S free until 2026-12-01T10:00:00Z; P1M ed25519:PT5M stay"
    async with opened(browser, StandIn()) as page:
        words = await page.evaluate(
            f"""import('/web/words.js').then((w) => [
                Object.values(w.partsOf({json.dumps(line)})),
                w.readable({json.dumps(reason)}, Date.parse("2026-12-01T09:00:00Z")),
            ])"""
        )
    assert words == [
        ["rtt", "a.example → 192.0.2.7"],
        "no 16 s free until 11:00:00; P1M ed25519:PT5M stay",
    ]
    assert "  ".join(words[0]) == line
    assert with_local_times(reason).startswith("no 16 s free until 2026-12-01 ")


async def test_words_for_times_and_schedules(browser: str) -> None:
    """Durations, countdowns and schedules are formatted for people."""
    async with opened(browser, StandIn()) as page:
        words = await page.evaluate(
            """import('/web/words.js').then((w) => [
                w.spell(252000), w.spell(7500000), w.spell(400), w.spell(0), w.spell(86400000 * 3),
                w.distance(90000, 0), w.age(0, 7300000), w.parseDuration('P1DT2H0.25S'),
                w.parseDuration('PT1M30.5S'), w.scheduleWords({}, 0),
                w.scheduleWords({repeat: 'PT5M', max_runs: 9, slip: 'PT30S', slip_random: true}, 0),
                w.scheduleWords({cron: '0 3 * * *'}, 0),
                w.scheduleWords({}, 0, {task: '7c1e5f00-0000', outcome: 'ended', within: 'PT1H'}),
            ])"""
        )
        assert words == [
            *(
                "4 min 12 s",
                "2 h 5 min",
                "0.4 s",
                "0 s",
                "3 d",
                "in 1 min 30 s",
                "2 h ago",
                93_600_250,
            ),
            *(90_500, "once, as soon as possible"),
            "every 5 min, at most 9 runs, at random within 30 s",
            "cron 0 3 * * * (UTC)",
            "after task 7c1e5f00, within 1 h",
        ]


async def test_results_have_units_and_no_gaps(browser: str) -> None:
    """Results have the units of the command line, and null fields are left out."""
    result = """{rate_bps: 941300000, cpu: {source: 0.00336}, datagrams: null, loss: 0,
        sent: {bytes: 1448, retransmits: null}, rtt_ms: [0.5, null], ttl_s: 300}"""
    async with opened(browser, StandIn()) as page:
        shown = await page.evaluate(
            f"""import('/web/tree.js').then(({{ known, tree }}) =>
                [...tree(known({result})).querySelectorAll('li:not(.nested)')].map(
                    (item) => [...item.children].map((it) => it.textContent).join(': ')))"""
        )
        assert shown == [
            *("rate: 941.3 Mb/s", "source: 0.336 %", "loss: 0 %", "bytes: 1.448 kB"),
            *("rtt: 0.5 ms, unknown", "ttl: 300 s"),
        ]


async def test_a_row_that_is_drawn_anew_keeps_the_focus_where_it_was(browser: str) -> None:
    """A second button of a row has the focus after the row is rebuilt; without it, the first."""
    async with opened(browser, StandIn()) as page:
        assert await page.evaluate(
            """import('/web/dom.js').then(({ element, reconcile }) => {
                const list = document.body.appendChild(element('ul'));
                const draw = (sign, names) => reconcile(list, ['one', 'two'], {
                    key: (name) => name, signature: () => sign,
                    build: (row) => element('li', {}, names.map((it) =>
                        element('button', {}, `${row} ${it}`))),
                });
                draw('first', ['open', 'hush']);
                list.children[1].children[1].focus();
                const seen = [];
                for (const names of [['open', 'hush'], ['open']]) {
                    draw(names.join(), names);
                    seen.push(document.activeElement.textContent);
                }
                return seen;
            })"""
        ) == ["two hush", "two open"]


async def test_events_are_read_however_they_are_cut(browser: str) -> None:
    """The stream is parsed equally whole or in pieces, with comments and any line ends."""
    async with opened(browser, StandIn()) as page:
        events = await page.evaluate(
            r"""import('/web/stream.js').then(({EventParser}) => {
                const seen = [];
                const keep = (event) => seen.push(Object.values(event).join('|'));
                const parser = new EventParser(keep);
                const text = ': hello\n\nid: 7\nevent: run\ndata: {"a":\r\ndata: 1}\r\n\r\n';
                for (const character of text + 'data:x\r\r\n') parser.feed(character);
                return seen;
            })"""
        )
        assert events == ['7|run|{"a":\n1}', "7|message|x"]


async def test_headers_fence_the_page_in() -> None:
    """Every file has the strict policy and a tag, and is not sent again if it is unchanged."""
    async with TestServer(StandIn().application()) as server, ClientSession() as session:
        for path in ("/", *(f"/web/{name}" for name in static_files())):
            async with session.get(server.make_url(path)) as response:
                policy = response.headers["Content-Security-Policy"]
                assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
                assert "unsafe" not in policy
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                assert response.headers["Referrer-Policy"] == "no-referrer"
                tag = response.headers["ETag"]
            again = {"If-None-Match": tag}
            async with session.get(server.make_url(path), headers=again) as response:
                assert (response.status, await response.read()) == (304, b"")
        async with session.get(server.make_url("/web/uplot.LICENSE")) as response:
            assert response.status == 404
