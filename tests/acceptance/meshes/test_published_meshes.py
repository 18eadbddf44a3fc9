"""Templates of psConfig and published mesh files: imported, applied, followed by a node."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.acceptance.commands import parley
from tests.acceptance.conftest import OWAMP_PORT
from tests.acceptance.outsider import Json, Outsider
from tests.support.archiving import receiver
from tests.support.command_line import CommandResult
from tests.support.loopback import serving

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("tidy"),
]

TEMPLATE: dict[str, Any] = {
    "_meta": {"display-name": "Published Lab"},
    "includes": ["nodes.json"],
    "archives": {
        "main": {"archiver": "bitbucket", "data": {}, "ttl": "P1D"},
        "old": {"archiver": "esmond", "data": {"url": "https://old.example"}},
    },
    "groups": {"all": {"type": "mesh", "addresses": [{"class": "lab"}]}},
    "address-classes": {
        "lab": {
            "data-source": {"type": "current-config"},
            "match-filter": {"type": "jq", "jq": {"script": '.tags | index("lab")'}},
        }
    },
    "tests": {
        "ping": {
            "type": "rtt",
            "spec": {
                "source": "{% address[0] %}",
                "dest": "{% address[1] %}",
                "count": "{% jq .test._meta.count %}",
            },
            "_meta": {"count": 3},
        }
    },
    "schedules": {"seldom": {"repeat": "PT6H", "slip": "PT1H", "sliprand": True}},
    "tasks": {
        "pings": {
            "group": "all",
            "test": "ping",
            "schedule": "seldom",
            "archives": ["main", "old"],
        }
    },
}
ADDRESSES = {
    "addresses": {
        **{name: {"address": name, "tags": ["lab"]} for name in "abc"},
        "d": {"address": "d.example", "tags": ["other"]},
    }
}


@dataclass
class Publisher:
    """A server that publishes documents, or is away."""

    url: str = ""
    published: dict[str, str] = field(default_factory=dict)

    async def answer(self, request: web.Request) -> web.Response:
        """Return what is published under this name."""
        text = self.published.get(request.match_info["name"])
        return web.Response(status=404) if text is None else web.Response(text=text)

    def publish(self, template: dict[str, Any], **changes: Any) -> None:
        """Publish a template."""
        self.published["psconfig.json"] = json.dumps({**template, **changes})


@contextlib.asynccontextmanager
async def publisher() -> AsyncIterator[Publisher]:
    """Start a server."""
    made = Publisher(published={"nodes.json": json.dumps(ADDRESSES)})
    made.publish(TEMPLATE)
    app = web.Application()
    app.router.add_get("/{name}", made.answer)
    async with serving(app) as url:
        made.url = f"{url}/psconfig.json"
        yield made


async def begun(
    node: Outsider, state: Path, *arguments: str, settings: dict[str, str]
) -> asyncio.subprocess.Process:
    """Start the command on a host whose state is in this folder."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "node.cli.main",
        *arguments,
        env={
            **os.environ,
            "PARLEY_SERVER": node.url,
            "PARLEY_TOKEN": node.token,
            "PARLEY_STATE_DIR": str(state),
            **settings,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def run(node: Outsider, state: Path, *arguments: str) -> CommandResult:
    """Run the command on such a host until it has ended."""
    return await parley(node, *arguments, PARLEY_STATE_DIR=str(state))


async def tasks_of(node: Outsider, mesh: str) -> dict[str, Json]:
    """Return the active tasks of a mesh by key."""
    page = await node.get(f"/v1/meshes/{mesh}/tasks")
    return {task["key"]: task for task in page["items"] if task["state"] == "active"}


@pytest.mark.needs("jq")
@pytest.mark.nightly
async def test_a_template_is_imported_and_applied(a: Outsider, tmp_path: Path) -> None:
    """The mesh file of a template is applied as it is, and says what it does not have."""
    file = tmp_path / "lab.toml"
    async with publisher() as server:
        ended = await run(a, tmp_path, "mesh", "import", server.url, "--write", str(file))
        assert ended.code == 0, ended.err
        assert ended.document["tasks"] == 6
        assert '! /archives/old: No archiver "esmond" is available' in ended.err
        assert "/archives/old" in file.read_text()
        assert file.stat().st_mode & 0o077 == 0
        server.published.pop("nodes.json")
        away = await run(a, tmp_path, "mesh", "import", server.url)
        assert (away.code, "nodes.json answers 404" in away.err) == (5, True)
    applied = await run(a, tmp_path, "mesh", "apply", str(file))
    assert (applied.code, applied.document["created"]) == (0, 6)
    plan = await run(a, tmp_path, "plan", "mesh", str(file))
    assert (plan.code, plan.document["findings"], plan.document["unchanged"]) == (0, [], 6)
    tasks = await tasks_of(a, "published-lab")
    assert {task["spec"]["count"] for task in tasks.values()} == {3}
    task = await a.get(f"/v1/tasks/{tasks['pings/a/b']['id']}")
    assert [(it["archiver"], it["format"]) for it in task["archives"]] == [
        ("bitbucket", "pscheduler")
    ]
    removed = await run(a, tmp_path, "mesh", "remove", "published-lab")
    assert removed.code == 0


@pytest.mark.needs("jq")
@pytest.mark.nightly
async def test_a_node_follows_its_part_of_a_template(a: Outsider, tmp_path: Path) -> None:
    """The tasks of a node are those that it schedules; what stays and changes, and why, is told."""
    async with publisher() as server:
        shown = await run(a, tmp_path, "mesh", "follow", server.url, "--dry-run")
        assert (shown.code, len(shown.document["create"])) == (0, 2), shown
        begun_ = await run(a, tmp_path, "mesh", "follow", server.url)
        assert begun_.code == 0, begun_.err
        assert begun_.document[0]["last"]["word"] == "changed"
        tasks = await tasks_of(a, "published-lab")
        assert set(tasks) == {"pings/a/b", "pings/a/c"}
        task = await a.get(f"/v1/tasks/{tasks['pings/a/b']['id']}")
        assert task["requester"] == "follower"

        async def look() -> tuple[int, Json]:
            ended = await run(a, tmp_path, "mesh", "follow", "--now")
            [mesh] = ended.document
            return ended.code, mesh["last"]

        # Somebody edits a task by hand, and cancels another one.
        patch = {"test": {"spec": {"count": 9}}}
        await a.ask("PATCH", f"/v1/tasks/{tasks['pings/a/b']['id']}", patch)
        await a.cancel({"id": tasks["pings/a/c"]["id"]})
        code, last = await look()
        assert (code, last["word"]) == (0, "changed")
        assert last["drift"] == ["pings/a/b was edited: count 9 → 3", "pings/a/c is missing"]
        assert {t["spec"]["count"] for t in (await tasks_of(a, "published-lab")).values()} == {3}

        # While it is away, or broken, everything stays.
        text = server.published.pop("psconfig.json")
        code, last = await look()
        assert (code, last["word"]) == (5, "away")
        assert "answers 404 Not Found: nothing is changed while it is away" in last["sentence"]
        server.published["psconfig.json"] = text[:-1]
        code, last = await look()
        assert (code, last["word"]) == (2, "broken")
        assert "is not JSON" in last["sentence"]
        assert len(await tasks_of(a, "published-lab")) == 2

        # What is published without a node ends there.
        server.publish(TEMPLATE)
        nodes = {name: entry for name, entry in ADDRESSES["addresses"].items() if name != "c"}
        server.published["nodes.json"] = json.dumps({"addresses": nodes})
        code, last = await look()
        assert (code, last["drift"]) == (0, [])
        assert set(await tasks_of(a, "published-lab")) == {"pings/a/b"}

        # A publisher does not send results elsewhere than when the mesh was followed.
        elsewhere = {"archiver": "http", "data": {"_url": "http://169.254.169.254/"}}
        server.publish(TEMPLATE, archives={**TEMPLATE["archives"], "main": elsewhere})
        code, last = await look()
        assert (code, last["word"]) == (2, "broken")
        assert "it sends results to http http://169.254.169.254/, which it" in last["sentence"]
        task = await a.get(f"/v1/tasks/{tasks['pings/a/b']['id']}")
        assert [it["archiver"] for it in task["archives"]] == ["bitbucket"]

    stopped = await run(a, tmp_path, "mesh", "follow", "--stop", "published-lab")
    assert stopped.code == 0
    assert await tasks_of(a, "published-lab") == {}


OLD: dict[str, Any] = {
    "_meta": {"display-name": "Älteres Netz"},
    "addresses": {name: {"address": name} for name in "abc"},
    "archives": {
        "here": {"archiver": "http", "data": {"schema": 2, "_url": "http://localhost:9/x"}},
        "old": {"archiver": "esmond", "data": {"url": "https://old.example"}},
    },
    "groups": {
        "all": {"type": "mesh", "addresses": [{"name": name} for name in "abc"]},
        "self": {
            "type": "disjoint",
            "excludes-self": "disabled",
            "a-addresses": [{"name": "a"}],
            "b-addresses": [{"name": "a"}, {"name": "b"}],
        },
    },
    "tests": {
        "ping": {
            "type": "rtt",
            "spec": {"source": "{% address[0] %}", "dest": "{% address[1] %}", "count": 3},
        },
        "counters": {"type": "snmpget", "spec": {"host": "{% address[0] %}"}},
    },
    "schedules": {
        "monthly": {"repeat": "P1M", "slip": "PT1H"},
        "over": {"repeat": "PT1H", "until": "2020-01-01T00:00:00Z"},
        "seldom": {"repeat": "PT6H", "slip": "PT1H"},
    },
    "tasks": {
        name: {"group": group, "test": test, "schedule": schedule, "archives": ["here", "old"]}
        for name, group, test, schedule in [
            ("over", "all", "ping", "over"),
            ("counters", "all", "counters", "seldom"),
            ("self", "self", "ping", "seldom"),
            ("Österreich " + "lang " * 20, "all", "ping", "monthly"),
        ]
    },
}


@pytest.mark.needs("ping")
@pytest.mark.nightly
async def test_an_old_template_never_freezes(a: Outsider, tmp_path: Path) -> None:
    """Tasks that cannot be measured are told with the effect, and the others apply, also later."""
    async with publisher() as server:
        server.publish(OLD)
        first = await run(a, tmp_path, "mesh", "follow", server.url)
        assert first.code == 0, first.err
        assert "! /schedules/over/until: is over since 2020-01-01T00:00:00Z (2 tasks" in first.err
        assert "5 tasks are left out; 3 apply" in first.err
        assert "5 tasks are left out; 3 apply" in first.document[0]["last"]["sentence"]
        long = "osterreich" + "-lang" * 10 + "-la"
        kept = {"self/a/b", f"{long}/a/b", f"{long}/a/c"}
        tasks = await tasks_of(a, "alteres-netz")
        assert set(tasks) == kept
        task = await a.get(f"/v1/tasks/{tasks['self/a/b']['id']}")
        assert task["archives"][0]["spec"]["url"] == "http://localhost:9/x"

        # A task that ends keeps no other one from coming.
        later = json.loads(json.dumps(OLD))
        later["schedules"]["seldom"]["until"] = "2020-01-01T00:00:00Z"
        later["tasks"]["new"] = {"group": "self", "test": "ping", "schedule": "monthly"}
        server.publish(later)
        looked = await run(a, tmp_path, "mesh", "follow", "--now")
        assert looked.code == 0, looked.err
        assert "7 tasks are left out; 3 apply" in looked.document[0]["last"]["sentence"]
        assert set(await tasks_of(a, "alteres-netz")) == {*kept - {"self/a/b"}, "new/a/b"}

        # One that has been emptied ends all.
        server.publish(OLD, tasks={}, addresses={}, groups={}, tests={})
        looked = await run(a, tmp_path, "mesh", "follow", "--now")
        assert (looked.code, looked.document[0]["last"]["word"]) == (0, "changed"), looked.err
        assert await tasks_of(a, "alteres-netz") == {}
    assert (await run(a, tmp_path, "mesh", "follow", "--stop", "alteres-netz")).code == 0


REFERRED = {
    "display-task-name": "Ping",
    "display-set-source": '{% jq .addresses[0]._meta."display-name" %}',
    "display-set-dest": "{% address[1] %}",
    "more": {"x": 1},
}


@pytest.mark.nightly
async def test_a_host_that_stays_is_asked_for_delays_by_owamp(a: Outsider, tmp_path: Path) -> None:
    """Its pair is in the mesh file and is measured by this end alone, without a word to add it."""
    stays, spec = "127.1.0.77", {"ctrl-port": OWAMP_PORT, "packet-count": 50}
    ends = {"source": "{% address[0] %}", "dest": "{% address[1] %}"}
    template = {
        "_meta": {"display-name": "Half moved"},
        "addresses": {"here": {"address": "a"}, "there": {"address": stays}},
        "groups": {"all": {"type": "mesh", "addresses": [{"name": "here"}, {"name": "there"}]}},
        "tests": {"delay": {"type": "latency", "spec": {**ends, **spec}}},
        "schedules": {"often": {"repeat": "PT20S", "slip": "PT10S"}},
        "tasks": {"delays": {"group": "all", "test": "delay", "schedule": "often"}},
    }
    file = tmp_path / "half.toml"
    async with publisher() as server:
        server.publish(template)
        ended = await run(a, tmp_path, "mesh", "import", server.url, "--write", str(file))
    assert (ended.code, ended.document["tasks"]) == (0, 1), ended.err
    assert "until then it is asked by OWAMP" in ended.err
    applied = await run(a, tmp_path, "mesh", "apply", str(file))
    assert (applied.code, applied.document["created"]) == (0, 1), applied.err
    [(key, task)] = (await tasks_of(a, "half-moved")).items()
    assert key == f"delays-owamp/a/{stays}"
    known = await a.get(f"/v1/tasks/{task['id']}")
    assert (known["tool"], [it["name"] for it in known["participants"]]) == ("owping", [a.name])
    run_of_now = await a.over((await a.runs(known))[0])
    assert run_of_now["state"] == "failed"
    assert run_of_now["reason"].startswith(f"{a.name}: no OWAMP with {stays}: ")
    assert (await run(a, tmp_path, "mesh", "remove", "half-moved")).code == 0


@pytest.mark.needs("jq")
@pytest.mark.nightly
async def test_dashboards_find_results_by_the_reference(a: Outsider, tmp_path: Path) -> None:
    """Archived documents have the reference of the template, which an edit replaces wholly."""
    async with publisher() as server, receiver() as taker:
        addresses = {
            name: {"address": name, "_meta": {"display-name": f"Site {name}"}} for name in "ab"
        }
        archive = {"archiver": "http", "data": {"schema": 2, "_url": taker.url, "op": "put"}}
        task = {"group": "self", "test": "ping", "archives": ["main"], "reference": REFERRED}
        meta = {"display-name": "Round trips"}
        changes: dict[str, Any] = {"addresses": addresses, "archives": {"main": archive}}

        def publish(**tasks: Any) -> None:
            server.publish(OLD, **changes, tasks=tasks)

        publish(ping={**task, "_meta": meta}, later={**task, "schedule": "monthly"})
        url = server.url
        begun_ = await run(a, tmp_path, "mesh", "follow", url, "--name", "referred")
        assert begun_.code == 0, begun_.err
        await a.until("/v1/archivings?limit=2", lambda _: taker.posted)
        [document] = taker.documents
        found = {**REFERRED, "display-set-source": "Site a", "display-set-dest": "b"}
        assert document["reference"] == {"mesh": "referred", "key": "ping/a/b", **found}
        assert document["task"]["reference"] == document["reference"]

        tasks = await tasks_of(a, "referred")
        kept = await a.get(f"/v1/tasks/{tasks['later/a/b']['id']}")
        assert kept["reference"]["reference"] == found
        looked = await run(a, tmp_path, "mesh", "follow", "--now")
        assert looked.document[0]["last"]["word"] == "in step", looked.document
        publish(later={**task, "schedule": "monthly", "reference": {"more": {"y": 2}}})
        looked = await run(a, tmp_path, "mesh", "follow", "--now")
        assert looked.document[0]["last"]["word"] == "changed", looked.document
        edited = await a.get(f"/v1/tasks/{tasks['later/a/b']['id']}")
        assert (edited["state"], edited["reference"]["reference"]) == ("active", {"more": {"y": 2}})
        looked = await run(a, tmp_path, "mesh", "follow", "--now")
        assert looked.document[0]["last"]["word"] == "in step", looked.document
    assert (await run(a, tmp_path, "mesh", "follow", "--stop", "referred")).code == 0


MESH = """
name = "filed"

[tests.reach]
type = "rtt"

[schedules.seldom]
repeat = "PT6H"

[[measure]]
shape = "full-mesh"
members = ["a", "b", "c"]
test = "reach"
schedule = "seldom"
"""

INNER = """
name = "inner"

[tests.look]
type = "http"
spec = { url = "http://169.254.169.254/latest/meta-data/", text = "AccessKeyId" }

[schedules.seldom]
repeat = "PT6H"

[[measure]]
shape = "each"
members = ["a"]
test = "look"
schedule = "seldom"
"""


async def test_a_publisher_has_nothing_inside_measured(a: Outsider, tmp_path: Path) -> None:
    """A published mesh is the word of its publisher, also when the owner follows it."""
    async with publisher() as server:
        server.published["inner.toml"] = INNER
        url = server.url.replace("psconfig.json", "inner.toml")
        begun_ = await run(a, tmp_path, "mesh", "follow", url)
        assert begun_.code != 0
        assert "the metadata service of a cloud" in begun_.document[0]["last"]["sentence"]
        assert await tasks_of(a, "inner") == {}
        looked = await run(a, tmp_path, "mesh", "follow", "--now")
        assert looked.document[0]["last"]["word"] == "failed"

        # One that nests without end does not keep others from being looked at.
        server.published["inner.toml"] = "x = " + "[" * 90_000
        looked = await run(a, tmp_path, "mesh", "follow", "--now")
        assert "is not TOML" in looked.document[0]["last"]["sentence"]
    stopped = await run(a, tmp_path, "mesh", "follow", "--stop", "inner")
    assert stopped.code == 0


@pytest.mark.needs("ping")
@pytest.mark.nightly
async def test_a_publisher_does_not_take_the_name_of_a_mesh(a: Outsider, tmp_path: Path) -> None:
    """A mesh that is published under the name of one that is here ends its tasks by a word only."""
    own = tmp_path / "filed.toml"
    own.write_text(MESH)
    assert (await run(a, tmp_path, "mesh", "apply", str(own))).code == 0
    before = set(await tasks_of(a, "filed"))
    async with publisher() as server:
        server.published["filed.toml"] = MESH.replace("reach", "other")
        url = server.url.replace("psconfig.json", "filed.toml")
        refused = await run(a, tmp_path, "mesh", "follow", url)
        assert (refused.code, "6 tasks of a mesh filed are here" in refused.err) == (3, True)
        assert set(await tasks_of(a, "filed")) == before
        agreed = await run(a, tmp_path, "mesh", "follow", url, "--name", "filed")
        assert (agreed.code, set(await tasks_of(a, "filed"))) == (0, {"other/a/b", "other/a/c"})
    assert (await run(a, tmp_path, "mesh", "follow", "--stop", "filed")).code == 0


@pytest.mark.nightly
async def test_a_mesh_is_followed_over_tls(a: Outsider, tmp_path: Path) -> None:
    """A mesh on another host is followed over plain HTTP only by an explicit word."""
    refused = await run(a, tmp_path, "mesh", "follow", "http://192.0.2.1/ps.json", "--dry-run")
    assert (refused.code, "use https, or --insecure" in refused.err) == (2, True), refused


@pytest.mark.needs("ping")
@pytest.mark.nightly
async def test_one_process_follows_all_the_time(a: Outsider, tmp_path: Path) -> None:
    """A process keeps a published mesh file in step; another one is told that it is there."""
    async with publisher() as server:
        url = server.url.replace("psconfig.json", "filed.toml")
        server.published["filed.toml"] = MESH
        first = await run(a, tmp_path, "mesh", "follow", url, "--interval", "1s")
        assert (first.code, set(await tasks_of(a, "filed"))) == (
            0,
            {"reach/a/b", "reach/a/c"},
        )
        other = await run(a, tmp_path, "mesh", "follow", f"{url}?other")
        assert (other.code, "mesh filed is followed from" in other.err) == (3, True)
        token = (tmp_path / "follows" / "token").read_text().strip()
        bearer = {"Authorization": f"Bearer {token}"}
        role = await a.ask("GET", "/v1/tokens/self", headers=bearer)
        assert (role.body["label"], role.body["role"]) == ("follower", "operate")
        file = {"PARLEY_TOKEN": "", "PARLEY_TOKEN_FILE": str(tmp_path / "follows" / "token")}
        serving = await begun(a, tmp_path, "mesh", "follow", "--serve", settings=file)
        try:
            server.published["filed.toml"] = MESH.replace(', "c"', "")

            def one_left(mesh: Json) -> bool:
                return bool(mesh["tasks"].get("active") == 1)

            await a.until("/v1/meshes/filed", one_left)

            def by_follower(audit: Json) -> bool:
                return "follower" in {each["principal"] for each in audit["items"]}

            await a.until("/v1/audit?limit=20", by_follower)
            second = await run(a, tmp_path, "mesh", "follow", "--serve")
            words = f"process {serving.pid} follows the meshes of this node already"
            assert (second.code, words in second.err) == (3, True)
        finally:
            serving.terminate()
            await serving.communicate()
        listed = await run(a, tmp_path, "mesh", "follow", "--list")
        assert [mesh["source"] for mesh in listed.document] == [url]
    kept = await run(a, tmp_path, "mesh", "follow", "--stop", "filed", "--keep")
    assert kept.code == 0
    assert set(await tasks_of(a, "filed")) == {"reach/a/b"}
    await run(a, tmp_path, "mesh", "remove", "filed")
