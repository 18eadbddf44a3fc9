"""The façade answers whatever it is sent: with lines of text, and never with a fault of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID, uuid4

import aiohttp
import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from yarl import URL

from node.pscheduler.app import ROUTES
from node.pscheduler.dialects.registry import dialects_of
from node.pscheduler.listener import listening
from node.pscheduler.refusals import Refusal
from node.pscheduler.tests.language import Language
from node.pscheduler.tests.registry import LANGUAGES
from node.trust.tls import unchecked_options
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.loopback import free_port
from tests.support.served_nodes import Served, served

pytestmark = pytest.mark.timeout(180)

TASK: dict[str, Any] = {
    "schema": 1,
    "test": {"type": "idle", "spec": {"schema": 1, "duration": "PT1S"}},
    "schedule": {"start": "PT1H", "repeat": "PT1H", "slip": "PT5M", "max-runs": 2},
    "archives": [{"archiver": "bitbucket", "data": {}}],
    "contexts": {"contexts": [[]]},
    "reference": {"a": [1, 2.5, None]},
    "tools": ["sleep"],
    "priority": 1,
    "_key": "k",
}
SPECS: dict[str, dict[str, Any]] = {
    "clock": {"dest": "127.0.0.1"},
    "dns": {"query": "a.example", "record": "a"},
    "http": {"url": "http://a.example/"},
    "idle": {"duration": "PT1S", "host": ["127.0.0.1", "127.0.0.2"], "schema": 2},
    "idlebgm": {"duration": "PT1S"},
    "idleex": {"duration": "PT1S"},
    "latency": {"dest": "127.0.0.1"},
    "latencybg": {"dest": "127.0.0.1"},
    "mtu": {"dest": "127.0.0.1"},
    "psresponse": {"dest": "127.0.0.1"},
    "rtt": {"dest": "127.0.0.1"},
    "simplestream": {"dest": "127.0.0.1"},
    "throughput": {"dest": "127.0.0.1"},
    "trace": {"dest": "127.0.0.1"},
}
"""A valid spec of each test."""
LED: dict[str, Any] = {
    "test": {"type": "idle", "spec": SPECS["idle"]},
    "tool": "sleep",
    "schedule": {},
    "participants": ["127.0.0.1", "127.0.0.2"],
    "_key": "k",
}
RUN = """
INSERT INTO run (
    id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, state, result,
    started_at, finished_at, created_at, changed_at
)
SELECT
    $1, $2, now(), 1, 'background', 0, now(), now() + interval '1 s', 'finished',
    '{"participants": 1, "duration_ms": 1000}', now(), now(), now(), now()
"""
NOBODYS = "0f0f3a4e-3c1f-4d3c-8d8f-5f3b6c1d2e3f"
WORDS = ("KNOWN", "LED", "first", "%00", "%F0%9F", "..%2f", "%2525", "x" * 3000)
"""Words in place of those in braces, as they stand in a URL."""


@dataclass(frozen=True)
class Attack:
    """A request that nobody means well with."""

    method: str
    path: str
    query: str
    body: bytes


TEXTS = st.text(max_size=20) | st.sampled_from(
    [
        "",
        "\x00",
        "\ud800",
        "🌩",
        "P1D",
        "PT-1S",
        "@P",
        "@P0D",
        "2026-02-30T00:00:00",
        "::1",
        "[::1]:x",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(2**70) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = list(value.items()) if isinstance(value, dict) else []
    inside = list(enumerate(value)) if isinstance(value, list) else inside
    return [at, *(place for step, each in inside for place in _places(each, (*at, step)))]


def _with(value: Any, place: tuple[Any, ...], other: Any) -> Any:
    if not place:
        return other
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[place[0]] = _with(value[place[0]], place[1:], other)
    return changed


@st.composite
def tasks(draw: st.DrawFn) -> Any:
    """A valid task with one or two of its values replaced by something else."""
    task: Any = TASK
    for _ in range(draw(st.integers(1, 2))):
        task = _with(task, draw(st.sampled_from(_places(task))), draw(VALUES))
    return task


ODD = [
    *(0, 1, 4, 6, 255, 1280, 70_000, 2**31, 2**53, 2**63, 2**70, -1, 0.5, 1e-9, 1e300),
    *("", "x", "a" * 300, "::1", "[::1]:8443", "192.0.2.9", "127.0.0.1", "a..b"),
    *("PT0S", "PT0.000001S", "PT0.1S", "PT1S", "PT3H", "P1D", "P400D", "P99999999D"),
    *("http://[::1", "http://a/", "tcp", "icmp", "cubic", "mx", True, False, None),
    *([], [None], ["127.0.0.1", "127.0.0.3"], {}, {"lower": 9, "upper": 1}, {"A": "b\n"}),
]
"""Values of members of specs."""
MEMBERS = st.sampled_from(ODD)


@st.composite
def specs(draw: st.DrawFn, *names: str) -> tuple[str, Any]:
    """A test with a spec of which a few members have odd values; nearly all of them are valid."""
    name = draw(st.sampled_from(names or list(SPECS)))
    language = LANGUAGES[name]
    spec = {**SPECS[name], "schema": language.highest}
    for member in draw(st.lists(st.sampled_from(list(language.members)), max_size=4)):
        fitting = [each for each in ODD if _fits(language, {**spec, member: each})]
        if fitting:
            spec = {**spec, member: draw(st.sampled_from(fitting))}
    if draw(st.integers(0, 9)):
        return name, spec
    known = st.sampled_from(["schema", *language.members])
    return name, {**spec, draw(known): draw(MEMBERS)}


def _fits(language: Language, spec: dict[str, Any]) -> bool:
    """Return whether a spec is valid."""
    try:
        language.check(spec)
    except Refusal:
        return False
    return True


@st.composite
def command_lines(draw: st.DrawFn) -> Attack:
    """The words of a test's options, in any order, with any values."""
    name = draw(st.sampled_from(list(LANGUAGES)))
    language = LANGUAGES[name]
    options = st.sampled_from([word for option in language.options for word in option.words])
    words = draw(st.lists(options | TEXTS | MEMBERS.map(str), max_size=6))
    query = urlencode({"args": json.dumps(words)}, errors="replace")
    return Attack("GET", f"/pscheduler//tests/{name}/spec", query, b"")


@st.composite
def posts(draw: st.DrawFn) -> Attack:
    """A task of any test, posted by a client, asked about, or led from outside."""
    if draw(st.booleans()):
        name, spec = draw(specs())
        task = {**TASK, "test": {"type": name, "spec": spec}}
        del task["tools"]
        if draw(st.booleans()):
            return Attack("POST", "/pscheduler/tasks", "", json.dumps(task).encode())
        query = urlencode({"proposal": json.dumps(task)})
        return Attack("GET", "/pscheduler/limits", query, b"")
    name, spec = draw(specs("idle", "simplestream", "throughput"))
    tool = draw(st.sampled_from([each.tool for each in dialects_of(name)]))
    task = {**LED, "test": {"type": name, "spec": spec}, "tool": tool}
    place = draw(st.sampled_from([1, 1, 1, 2]))
    path = f"/pscheduler/tasks/{draw(st.uuids())}"
    return Attack("POST", path, f"participant={place}", json.dumps(task).encode())


@st.composite
def paths(draw: st.DrawFn) -> str:
    """A path of the table with anything in place of its words in braces, and slashes doubled."""
    route = draw(st.sampled_from(ROUTES))
    ids = st.sampled_from(["KNOWN", "LED", "RUN", "first", "next", NOBODYS])
    names = st.sampled_from([*LANGUAGES, "ping", "finished", "bitbucket"])
    words = [draw(ids | names | TEXTS) if word.startswith("{") else word for word in route.words]
    slash = draw(st.sampled_from(["/", "/", "//", "/./"]))
    return slash.join(
        ["", "pscheduler", *(quote(word, safe="", errors="replace") for word in words)]
    )


_NAMES = (
    "args spec proposal json data test detail expanded api pretty key wait-local wait-merged "
    "start end limit upcoming task format window participant priority lead-bind"
)
PARAMETERS = st.dictionaries(
    st.sampled_from(_NAMES.split()),
    VALUES.map(json.dumps) | TEXTS | st.just("0"),
    max_size=3,
)
WAITS = st.sampled_from(["0", "0", "0.1", "x", "-1", "1e400", "nan", '"0"'])

ATTACKS = (
    st.builds(
        Attack,
        st.sampled_from(["GET", "GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"]),
        paths(),
        st.builds(
            lambda query, wait: urlencode({**query, "wait": wait}, errors="replace"),
            PARAMETERS,
            WAITS,
        ),
        tasks().map(lambda task: json.dumps(task).encode())
        | VALUES.map(lambda value: json.dumps(value).encode())
        | st.binary(max_size=30),
    )
    | st.builds(
        Attack,
        st.just("POST"),
        st.just("/pscheduler/tasks"),
        st.just(""),
        tasks().map(lambda task: json.dumps(task).encode()),
    )
    | command_lines()
    | posts()
)


@pytest_asyncio.fixture
async def node(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Served]:
    """A node with the façade; nothing is planned or measured."""
    place = f"127.0.0.1:{free_port()}"
    dsn = await new_database()
    async with (
        served(
            "a",
            dsn,
            clock,
            tmp_path,
            tls=True,
            pscheduler_listen=place,
            pscheduler_allow="127.0.0.1",
        ) as running,
        listening(running),
    ):
        yield running


@dataclass
class Target:
    """A façade, with what stands for the words of known things in paths."""

    base: str
    session: aiohttp.ClientSession
    known: dict[str, str]

    async def send(self, attack: Attack) -> tuple[int, str]:
        """Return status and text of an answer, which must be one that a caller can do with."""
        path = attack.path
        for word, number in self.known.items():
            path = path.replace(word, number)
        query = f"?{attack.query}" if attack.query else ""
        url = URL(f"{self.base}{path}{query}", encoded=True)
        async with self.session.request(
            attack.method, url, data=attack.body or None, allow_redirects=False
        ) as answer:
            text = await answer.text()
            assert answer.status < 500 or answer.status == 501, (attack, answer.status, text)
            if answer.status >= 400 and attack.method != "HEAD":
                assert answer.content_type == "text/plain", (attack, text)
                assert text.strip()
                assert text.endswith("\n")
            return answer.status, text


@pytest_asyncio.fixture
async def target(node: Served) -> AsyncIterator[Target]:
    """The façade with a posted task, one that is led from outside, and a run."""
    connector = aiohttp.TCPConnector(ssl=unchecked_options()["ssl"])
    async with aiohttp.ClientSession(connector=connector) as session:
        target = Target(f"https://{node.settings.pscheduler_listen}", session, {})
        document = json.dumps(TASK).encode()
        status, href = await target.send(Attack("POST", "/pscheduler/tasks", "", document))
        assert status == 200, href
        known, led, run = json.loads(href).rpartition("/")[2], uuid4(), uuid4()
        document = json.dumps(LED).encode()
        path = f"/pscheduler/tasks/{led}"
        status, text = await target.send(Attack("POST", path, "participant=1", document))
        assert status == 200, text
        async with node.database.transaction() as connection:
            await connection.execute(RUN, run, UUID(known))
        target.known |= {"KNOWN": known, "LED": str(led), "RUN": str(run)}
        yield target


@pytest.mark.nightly
async def test_whatever_is_sent_is_answered_in_words(target: Target) -> None:
    """Refusals are lines of text with a status of the caller's fault, whatever is asked for."""
    assert SPECS.keys() == LANGUAGES.keys()
    loop = asyncio.get_running_loop()

    @settings(max_examples=400)
    @given(ATTACKS)
    def attacked(attack: Attack) -> None:
        asyncio.run_coroutine_threadsafe(target.send(attack), loop).result()

    await asyncio.to_thread(attacked)


@pytest.mark.nightly
async def test_each_path_takes_any_word(target: Target) -> None:
    """Each path of each method is answered for any word in it, and alike with slashes doubled."""
    for route in ROUTES:
        for word in WORDS:
            words = [word if each.startswith("{") else each for each in route.words]
            path = "/".join(["/pscheduler", *words])
            first, _ = await target.send(Attack(route.method, f"{path}/", "", b""))
            if route.method == "GET":
                doubled = path.replace("/", "//")
                second, _ = await target.send(Attack("GET", doubled, "", b""))
                assert first == second
