"""Circumstances and verdicts of results, and contexts of measurements.

Most tests need root, for the wire into another namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from pathlib import Path

import pytest

from tests.acceptance.commands import parley
from tests.acceptance.outsider import Json, Outsider
from tests.acceptance.wire import DEVICE, FAR, FAR_DEVICE, NAMESPACE, NEAR

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("tidy")]


async def measured(node: Outsider, test: str, *participants: Outsider, **document: Json) -> Json:
    """Create a task, and return its finished run."""
    task = await node.create(test, *participants, **document)
    return await node.finished(await node.run(task))


@pytest.mark.needs("root", "ip")
async def test_cards_say_what_is_offered(a: Outsider, b: Outsider) -> None:
    """A card has the allowed and existing contexts, each with its address."""
    offered = {
        name: address
        for node in (await a.get("/v1/nodes"))["items"]
        for name, address in node["attributes"].items()
        if name.startswith("context:")
    }
    assert offered == {
        f"context:interface:{DEVICE}": NEAR,
        f"context:address:{NEAR}": NEAR,
        f"context:namespace:{NAMESPACE}": FAR,
    }
    assert f"context:interface:{DEVICE}" in (await parley(a, "node", "show", "-o", "table")).out


async def test_a_signed_directory_introduces_nodes(
    a: Outsider, b: Outsider, c: Outsider, tmp_path: Path
) -> None:
    """A node that another one has removed is added again from a file, and they measure together."""
    file = str(tmp_path / "nodes.json")
    written = await parley(a, "node", "introduce", "--write", file, "-o", "json")
    assert json.loads(written.out)["nodes"] == ["a", "b", "c"], written.err
    assert (await b.ask("DELETE", "/v1/nodes/c")).status == 200
    done = await parley(b, "node", "introduce", file, "-o", "json")
    states = {node["name"]: node["state"] for node in json.loads(done.out)}
    assert (done.code, states) == (0, {"a": "known", "b": "self", "c": "added"}), done.err
    await measured(b, "idle", b, c)


@pytest.mark.needs("root", "ip")
@pytest.mark.parametrize(
    ("test", "spec", "own"),
    [
        ("latency", {"count": 20, "interval": "PT0.02S"}, f"interface:{DEVICE}"),
        pytest.param(
            "throughput",
            {"duration": "PT1S", "omit": "PT0S"},
            f"address:{NEAR}",
            marks=pytest.mark.needs("iperf3"),
        ),
    ],
    ids=["interface", "address"],
)
@pytest.mark.nightly
async def test_parts_are_measured_from_where_it_was_asked(
    a: Outsider, b: Outsider, test: str, spec: Json, own: str
) -> None:
    """Parts are measured from the requested contexts, and report them."""
    contexts = {"a": own, "b": f"namespace:{NAMESPACE}"}
    run = await measured(a, test, a, b, spec=spec, contexts=contexts)
    circumstances = {part["name"]: part["circumstances"] for part in run["parts"]}
    assert {name: it["context"] for name, it in circumstances.items()} == contexts
    assert {name: it["interface"]["name"] for name, it in circumstances.items()} == {
        "a": DEVICE,
        "b": FAR_DEVICE,
    }
    assert all(it["interface"]["sent_packets"] > 10 for it in circumstances.values())


@pytest.mark.needs("root", "ip", "ping")
async def test_a_namespace_is_entered_to_ask_any_host(a: Outsider, b: Outsider) -> None:
    """A participant pings from a namespace, and the lead has the output."""
    spec = {"source": "b", "dest": NEAR, "count": 3}
    run = await measured(a, "rtt", spec=spec, contexts={"b": f"namespace:{NAMESPACE}"})
    assert run["result"]["received"] == 3
    (part,) = run["parts"]
    assert part["output"].startswith(f"PING {NEAR}")
    assert part["circumstances"]["tool_version"].isdecimal()
    raw = json.loads((await parley(a, "run", "result", run["id"], "--raw")).out)
    assert raw == [{name: part[name] for name in ("name", "command", "output")}]
    shown = await parley(a, "run", "result", run["id"], "--raw", "-o", "table")
    assert shown.out.startswith("b: ping -n -c 3")
    assert (await b.get(f"/v1/runs/{run['id']}"))["parts"] == [part]


@pytest.mark.parametrize(
    ("contexts", "reason"),
    [
        ({"b": "interface:lo"}, "b: measuring from interface:lo is not allowed here"),
        ({"b": "interface:lo"}, "can allow it: PARLEY_CONTEXTS=interface:lo"),
        ({"b": "namespace:parley-nowhere"}, "b: this host has no network namespace parley-nowhere"),
        ({"c": "interface:lo"}, "takes no part; the participants are a, b"),
        ({"b": "bridge:x"}, "write namespace:NAME, interface:NAME or address:IP"),
        ({"b": "namespace:../../etc"}, "is not a valid context name"),
        ({"b": "interface:-I"}, "is not a valid context name"),
    ],
)
async def test_what_is_not_offered_is_refused_at_once(
    a: Outsider, contexts: Json, reason: str
) -> None:
    """A context that is not offered is refused with the reason and the setting that allows it."""
    body = {"test": {"type": "latency"}, "participants": ["a", "b"], "contexts": contexts}
    answer = await a.ask("POST", "/v1/tasks", body)
    assert answer.status == 422, answer
    assert reason in json.dumps(answer.body)


@pytest.mark.needs("root", "ip")
async def test_a_context_cannot_be_edited_and_outlives_edits(
    a: Outsider,
    b: Outsider,
) -> None:
    """The contexts of a task cannot be edited, and survive other edits."""
    contexts = {"b": f"namespace:{NAMESPACE}", "a": f"interface:{DEVICE}"}
    schedule = {"start": "PT1H"}
    task = await a.create("latency", a, b, contexts=contexts, schedule=schedule)
    path = f"/v1/tasks/{task['id']}"
    assert (await a.ask("PATCH", path, {"contexts": {}})).pointers == ["/contexts"]
    edited = await a.ask("PATCH", path, {"test": {"spec": {"count": 7}}})
    assert edited.status == 200, edited
    places = [(p["context"], p["address"]) for p in edited.body["participants"]]
    assert places == [(f"interface:{DEVICE}", NEAR), (f"namespace:{NAMESPACE}", FAR)]
    await a.cancel(task)


@pytest.mark.needs("ping")
@pytest.mark.nightly
async def test_what_else_ran_is_told(a: Outsider, b: Outsider) -> None:
    """A background run during an exclusive one is not clean, wherever it is shown."""
    beside = await a.create("idle", spec={"duration": "PT6S", "class": "exclusive"})
    await a.until_state(await a.run(beside), "running")
    run = await measured(a, "rtt", spec={"dest": "127.0.0.1", "count": 2})
    assert run["verdict"] != "clean"
    assert any("(idle) of a overlapped by" in reason for reason in run["verdict_reasons"])
    assert f"; {run['verdict']}: " in (await a.explain("run", run))["sentence"]
    assert f"{run['verdict']}: 0." in (await parley(a, "run", "list", "-o", "table")).out
    shown = (await parley(a, "run", "show", run["id"], "-o", "table")).out
    assert "of a overlapped by" in shown
    assert "processors" in shown


@pytest.mark.needs("root", "ip", "iperf3")
async def test_foreign_traffic_contaminates(a: Outsider, b: Outsider) -> None:
    """Foreign traffic on a test's path is reported with its rate and interface."""
    contexts = {"a": f"interface:{DEVICE}", "b": f"namespace:{NAMESPACE}"}
    spec = {"duration": "PT2S", "omit": "PT0S", "rate_bps": 5_000_000}
    flood = asyncio.create_task(_flood())
    try:
        run = await measured(a, "throughput", a, b, spec=spec, contexts=contexts)
    finally:
        flood.cancel()
    assert run["verdict"] == "contaminated", run["verdict_reasons"]
    reasons = " ".join(run["verdict_reasons"])
    assert f"over {DEVICE} that were not this test's" in reasons
    assert f"over {FAR_DEVICE} that were not this test's" in reasons


async def _flood() -> None:
    """Send about ten megabits a second to the far end of the wire."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint:
        while True:
            for _ in range(20):
                with contextlib.suppress(OSError):  # port unreachable, told late
                    endpoint.sendto(bytes(1000), (FAR, 9))
            pause = loop.create_future()
            loop.call_later(0.016, pause.set_result, None)
            await pause
