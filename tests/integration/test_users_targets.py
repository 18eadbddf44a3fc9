"""Users with the role run are bound by the rules for targets, unless the limits say otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from node.execution import process
from node.model import times
from node.model.errors import HostError
from node.model.host_limits.rules import User
from node.model.ids import TaskId, run_id
from node.model.principals import FOLLOWER, Role
from node.model.wire.secrets import SecretDocument
from node.model.wire.tasks import Schedule, TaskDocument
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.limits import limit
from tests.support.served_nodes import Asker, asker, give_token, user
from tests.support.worlds import ON_ONE_LOOP, Site, World

PUBLIC = "http://203.0.113.9/"
METADATA = "http://169.254.169.254/latest/meta-data/"
HOUR = START + times.HOUR
ALICE = User("alice", bound=True)
LAB = """
version = 1
[who.guests]
users = true
[targets.lab]
networks = ["10.9.0.0/16"]
[[rule]]
name = "the lab"
who = ["guests"]
to = ["lab", "public"]
priority_max = 3
"""


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return the owner of a node that knows no other one, and whose limits are the default."""
    async with asker("a", await new_database(), clock, tmp_path) as owner:
        await give_token(owner.node, "guest", "alice", Role.RUN)
        await give_token(owner.node, "hers", "alice", Role.OPERATE)
        yield owner


@pytest.fixture
async def guest(a: Asker) -> AsyncIterator[Asker]:
    """Return a user of that node with the role run."""
    async with user(a, "guest") as alice:
        yield alice


def _of(test: str, spec: dict[str, Any], **fields: Any) -> dict[str, Any]:
    start = times.format_instant(START + 3 * times.HOUR)
    return {"test": {"type": test, "spec": spec}, "schedule": {"start": start}, **fields}


def _http(url: str, **fields: Any) -> dict[str, Any]:
    return _of("http", {"url": url}, **fields)


def _why(problem: Any) -> str:
    assert problem["type"].rsplit("/", 1)[-1] == "limit-refused"
    return str(problem["limits"][0]["detail"])


async def test_inner_targets_of_a_guest(a: Asker, guest: Asker) -> None:
    """A guest is refused loopback, the cloud's metadata and private hosts; an operator is not."""
    for url, kind in (
        (METADATA, "the metadata service of a cloud"),
        ("http://127.2:9/", "a loopback address"),
        ("http://10.9.8.7/", "a private address"),
        ("http://localhost./", "this host itself"),
    ):
        status, problem = await guest.ask("POST", "/v1/tasks", _http(url))
        assert (status, kind in _why(problem)) == (403, True), url
        assert "tasks of users with the role run must not reach" in _why(problem)
        _, plan = await guest.ask("POST", "/v1/plans", _http(url))
        assert (plan["outcome"], kind in plan["sentence"]) == ("refused", True)
        async with user(a, "hers") as operator:
            assert (await operator.ask("POST", "/v1/tasks", _http(url)))[0] == 201
    assert (await guest.ask("POST", "/v1/tasks", _http(PUBLIC)))[0] == 201
    unchecked = {**_http(PUBLIC), "tools": ["curl"]}
    assert "set redirects to 0" in _why((await guest.ask("POST", "/v1/tasks", unchecked))[1])


async def test_a_publisher_has_the_targets_of_a_guest(a: Asker) -> None:
    """A task of parley-follow reaches nothing inside, and no secret but those that name it."""
    await give_token(a.node, "published", FOLLOWER, Role.OPERATE)
    await a.node.secrets.add(SecretDocument(name="door", value="hush"))
    secret = {"spec": {"url": PUBLIC, "headers": {"Authorization": {"secret": "door"}}}}
    _, owned = await a.ask("POST", "/v1/tasks", _http(PUBLIC))
    async with user(a, "published") as follower:
        for url in (METADATA, "http://127.2:9/", "http://10.9.8.7/"):
            assert _why((await follower.ask("POST", "/v1/tasks", _http(url)))[1]), url
            patch = {"test": {"spec": {"url": url}}}
            assert _why((await follower.ask("PATCH", f"/v1/tasks/{owned['id']}", patch))[1]), url
        for method, path, body in (
            ("POST", "/v1/tasks", {**_http(PUBLIC), "test": {"type": "http", **secret}}),
            ("PATCH", f"/v1/tasks/{owned['id']}", {"test": secret}),
        ):
            status, problem = await follower.ask(method, path, body)
            assert (status, "no secret door" in problem["detail"]) == (403, True), problem
        assert (await follower.ask("POST", "/v1/tasks", _http(PUBLIC, priority=7)))[0] == 201


async def test_the_priority_of_a_guest(a: Asker, guest: Asker) -> None:
    """A guest has no priority above 0, unless a rule is for them and says more."""
    status, problem = await guest.ask("POST", "/v1/tasks", _http(PUBLIC, priority=1))
    assert (status, problem["limits"][0]["pointer"]) == (403, "/priority")
    _, task = await guest.ask("POST", "/v1/tasks", _http(PUBLIC, priority=0))
    status, problem = await guest.ask("PATCH", f"/v1/tasks/{task['id']}", {"priority": 2**31 - 1})
    assert (status, problem["limits"][0]["pointer"]) == (403, "/priority")
    assert (await a.ask("POST", "/v1/tasks", _http(PUBLIC, priority=7)))[0] == 201
    await limit(a.node, LAB)
    assert (await guest.ask("POST", "/v1/tasks", _http(PUBLIC, priority=3)))[0] == 201
    status, problem = await guest.ask("POST", "/v1/tasks", _http(PUBLIC, priority=4))
    assert (status, problem["limits"][0]["rule"]) == (403, "the lab")


async def test_resolvers_of_the_host_for_a_guest(a: Asker, guest: Asker) -> None:
    """A guest asks this host's own resolvers only under a rule that names the test."""
    inner = _of("dns", {"name": "inner.example"})
    named = _of("dns", {"name": "x.example", "server": "203.0.113.9"})
    status, problem = await guest.ask("POST", "/v1/tasks", inner)
    assert (status, problem["limits"][0]["allowed"]) == (403, "under a rule that names the test")
    assert "would tell this user what this host's own resolvers answer" in _why(problem)
    assert (await guest.ask("POST", "/v1/tasks", named))[0] == 201
    hops = _of("trace", {"dest": "203.0.113.9", "names": True})
    assert (await guest.ask("POST", "/v1/tasks", hops))[0] == 201
    async with user(a, "hers") as operator:
        assert (await operator.ask("POST", "/v1/tasks", inner))[0] == 201
    await limit(a.node, LAB)
    status, problem = await guest.ask("POST", "/v1/tasks", inner)
    assert (status, problem["limits"][0]["rule"]) == (403, "the lab")
    await limit(a.node, f'{LAB}tests = ["dns"]\n')
    assert (await guest.ask("POST", "/v1/tasks", inner))[0] == 201


async def test_a_trial_as_a_guest(a: Asker, guest: Asker) -> None:
    """A trial as a user says what their post would, by the role of their tokens."""
    await give_token(a.node, "boss", "bob", Role.OPERATE)
    await give_token(a.node, "looks", "bob", Role.READ)
    inner = _of("dns", {"name": "inner.example"})
    for document in (_http(METADATA), _http(PUBLIC, priority=1), _http(PUBLIC), inner):
        status, problem = await guest.ask("POST", "/v1/tasks", document)
        for label in ("alice", "nobody-yet", "pscheduler:192.0.2.7"):
            trial = {"as": f"token:{label}", "task": document}
            _, tried = await a.ask("POST", "/v1/limits/trials", trial)
            assert tried["allowed"] == (status == 201)
            refusal = tried["refusal"] and tried["refusal"]["detail"]
            assert refusal == (None if status == 201 else _why(problem))
        for label in ("bob", "owner"):
            trial = {"as": f"token:{label}", "task": document}
            assert (await a.ask("POST", "/v1/limits/trials", trial))[1]["allowed"]


async def test_a_rule_that_names_targets(a: Asker, guest: Asker) -> None:
    """A rule opens to guests the networks that it names, and no other inner one."""
    await limit(a.node, LAB)
    assert (await guest.ask("POST", "/v1/tasks", _http("http://10.9.8.7/")))[0] == 201
    for url in ("http://10.8.8.8/", METADATA):
        assert (await guest.ask("POST", "/v1/tasks", _http(url)))[0] == 403


async def test_edits_of_a_guest(a: Asker, guest: Asker) -> None:
    """A guest edits no task to an inner target, not even one that an operator of that name made."""
    async with user(a, "hers") as operator:
        _, made = await operator.ask("POST", "/v1/tasks", _http(PUBLIC))
    inner = {"test": {"spec": {"url": METADATA}}}
    for path in (f"/v1/tasks/{made['id']}", f"/v1/tasks/{made['id']}?dry_run=true"):
        status, problem = await guest.ask("PATCH", path, inner)
        assert (status, "the metadata service" in _why(problem)) == (403, True)
    bound = "SELECT limit_bound FROM task WHERE id = $1"
    assert (await a.rows(bound, made["id"]))[0][0] is False
    named = {"test": {"spec": {"url": "http://inner.example/"}}}
    assert (await guest.ask("PATCH", f"/v1/tasks/{made['id']}", named))[0] == 200
    assert (await a.rows(bound, made["id"]))[0][0] is True
    assert (await a.ask("PATCH", f"/v1/tasks/{made['id']}", {"priority": 2}))[0] == 200
    assert (await a.rows(bound, made["id"]))[0][0] is True
    assert (await a.ask("PATCH", f"/v1/tasks/{made['id']}", inner))[0] == 200
    assert (await a.rows(bound, made["id"]))[0][0] is False


PING = {"type": "rtt", "spec": {"dest": "localhost", "ip_version": 4}}


async def _run(
    world: World,
    site: Site,
    by: User,
    monkeypatch: pytest.MonkeyPatch,
    test: Mapping[str, Any] = PING,
    before: Callable[[], Awaitable[object]] | None = None,
) -> list[str]:
    """Return the programs that were started for a test, and why none was.

    ``before`` is done once the run is booked.
    """
    programs: list[str] = []

    async def start(argv: Any, **_: Any) -> Any:
        programs.append(" ".join(argv))
        raise HostError("not started, this is a test")

    monkeypatch.setattr(process, "start", start)
    schedule = Schedule(start=HOUR, slip=0).times.model_dump(mode="json")
    document = TaskDocument.model_validate({"test": test, "schedule": schedule})
    # Refused at once; so it is written as if a name had changed since.
    monkeypatch.setattr(site.node.foreign_targets, "refusal_of_user", lambda *_: None)
    task, _ = await site.node.admission.create(document, None, by)
    await site.plan()
    await world.settle()
    if before is not None:
        await before()
    world.clock.move_to(HOUR)
    await site.node.launcher.run_once()
    await asyncio.gather(*site.node.launcher._tasks.values())
    run = run_id(TaskId(task), HOUR, 1)
    [part] = await site.rows("SELECT reason FROM part WHERE run_id = $1", run)
    return [*programs, str(part["reason"])]


@ON_ONE_LOOP
async def test_names_are_judged_before_each_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name in a guest's task is looked up and judged before the run, whatever it was before."""
    a = await world.site("a", listen="192.0.2.1:8642")
    [reason] = await _run(world, a, ALICE, monkeypatch)
    assert reason.startswith("localhost leads to a loopback address, which tasks of users with")


@ON_ONE_LOOP
async def test_names_of_the_owner_are_not(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name in a task of the owner may lead anywhere."""
    a = await world.site("a", listen="192.0.2.1:8642")
    assert len(await _run(world, a, User("owner"), monkeypatch)) == 2


@ON_ONE_LOOP
@pytest.mark.parametrize(
    ("users", "told"),
    [
        (("alice",), "not started, this is a test"),
        ((), "there is no secret door that alice may use; its owner lets them: "),
    ],
)
@pytest.mark.nightly
async def test_a_secret_that_no_longer_names_a_user_ends_their_runs(
    world: World, monkeypatch: pytest.MonkeyPatch, users: tuple[str, ...], told: str
) -> None:
    """A run of a user whom a secret does not name any more starts no program, and says why."""
    a = await world.site("a", listen="192.0.2.1:8642")
    door = {"name": "door", "value": "hush", "hosts": ("203.0.113.9",)}
    headers = {"Authorization": {"secret": "door"}}
    test = {"type": "http", "spec": {"url": PUBLIC, "headers": headers, "redirects": 0}}

    async def add(users: tuple[str, ...], *, replace: bool = False) -> None:
        document = {**door, "users": users, "replace": replace}
        await a.node.secrets.add(SecretDocument.model_validate(document))

    await add(("alice",))
    change = partial(add, users, replace=True)
    *programs, reason = await _run(world, a, ALICE, monkeypatch, test, change)
    assert (len(programs), reason.startswith(told)) == (len(users), True), reason
