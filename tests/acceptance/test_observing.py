"""Metrics of runs, requests and figures, as those who watch a node read them."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.outsider import Json, Outsider
from tests.support.patience import PATIENCE_S

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("tidy"),
    pytest.mark.needs("prometheus"),
]


async def _metrics(node: Outsider) -> str:
    headers = {"Authorization": f"Bearer {node.token}"}
    async with node.session.get(f"{node.url}/metrics", headers=headers) as answer:
        assert answer.status == 200
        return await answer.text()


async def _until_counted(node: Outsider, *beginnings: str) -> None:
    """Return once there is a sample above 0 that begins with each of these."""
    missing = set(beginnings)
    try:
        async with asyncio.timeout(PATIENCE_S), node.changes() as changed:
            while True:
                lines = (await _metrics(node)).splitlines()
                there = [line for line in lines if not line.endswith(" 0.0")]
                missing = {b for b in beginnings if not any(line.startswith(b) for line in there)}
                if not missing:
                    return
                await changed()
    except TimeoutError:
        assert not missing, missing


@pytest.mark.nightly
async def test_a_run_is_counted_where_it_is_led_and_where_it_is_measured(
    a: Outsider, b: Outsider
) -> None:
    """A run counts once for each node, by its role there, and its figures name the direction."""
    task = await a.create("rtt", a, spec={"dest": "127.0.0.1", "count": 2, "interval": "PT0.1S"})
    await a.finished(await a.run(task))
    pair = await a.create("idle", a, b, spec={"duration": "PT1S"})
    run = await a.finished(await a.run(pair))
    await _until_counted(
        a,
        'parley_runs_ended_total{campaign="default",cause="",outcome="finished",role="lead",test="rtt"}',
        'parley_start_error_seconds_count{test="rtt"}',
        'parley_request_seconds_count{method="POST",route="/v1/tasks",status="201"}',
        f'parley_result_rtt_median_seconds{{campaign="default",dest="127.0.0.1",participants="a",source="a",'
        f'target="127.0.0.1",task="{task["id"]}",test="rtt"}}',
        "parley_planning_seconds_count{lead=",
        "parley_exchange_seconds_count{lead=",
        "parley_build_info{",
        "process_cpu_seconds_total",
    )
    await _until_counted(
        b,
        'parley_runs_ended_total{campaign="default",cause="",outcome="finished",role="participant"',
    )
    for node in (a, b):
        line = await _logged_end(node, run)
        assert (line["state"], line["task"], line["what"]) == ("finished", pair["id"], "idle  a, b")
        assert line["trace_id"] == run["id"].replace("-", "")


async def _logged_end(node: Outsider, run: Json) -> Json:
    """Return the line of a node's log about the end of a run, once it is there."""
    async with asyncio.timeout(PATIENCE_S), node.changes() as changed:
        while True:
            found = [line for line in _logged(node, "run ended") if line["run"] == run["id"]]
            if found:
                [line] = found
                return line
            await changed()


def _logged(node: Outsider, event: str) -> list[Json]:
    """Return the lines of a node's log about an event."""
    lines = Path(f"{node.state}.log").read_text().splitlines()
    return [json.loads(line) for line in lines if f'"{event}"' in line]


async def test_metrics_are_as_prometheus_wants_them(a: Outsider) -> None:
    """The linter of Prometheus accepts names, units, types and help of all metrics."""
    text = await _metrics(a)
    command = ["promtool", "check", "metrics"]
    linted = await asyncio.to_thread(
        subprocess.run, command, input=text, capture_output=True, text=True, check=False
    )
    assert (linted.returncode, linted.stdout, linted.stderr) == (0, "", "")
