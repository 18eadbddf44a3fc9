"""Wire documents: what is accepted, what is refused, and where the fault is."""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from node.mesh.document import parse as parse_mesh
from node.model import times
from node.model.digests import differences, fingerprint
from node.model.errors import (
    Conflict,
    FieldFault,
    InvalidDocument,
    ParleyError,
    PeerError,
    RequestError,
)
from node.model.ids import TaskId, exchange_id, run_id
from node.model.times import HOUR, SECOND
from node.model.wire.fields import FROM_OUTSIDE, Duration, Host, Instant
from node.model.wire.participants import Batch, ProposalRequest
from node.model.wire.problems import Problem, error_of, problem_of
from node.model.wire.reservations import OccasionsDocument
from node.model.wire.tasks import Schedule, ScheduleTerms, TaskDocument
from node.model.wire.validation import faults_of

COMPLETE: dict[str, Any] = {
    "test": {
        "type": "throughput",
        "spec": {"source": "a.example", "dest": "b.example", "duration": "PT10S"},
    },
    "tools": ["iperf3"],
    "schedule": {
        "start": "2026-12-01T00:00:00Z",
        "repeat": "PT1H",
        "slip": "PT10M",
        "slip_random": True,
        "until": "2027-01-01T00:00:00Z",
        "max_runs": 500,
    },
    "priority": 10,
    "campaign": "ops",
    "reference": {"ticket": 4711},
}
patient = settings(deadline=None)

HOST = TypeAdapter[str](Host)
INSTANT = TypeAdapter[int](Instant)
DURATION = TypeAdapter[int](Duration)


def faults(changes: dict[str, Any]) -> dict[str, str]:
    """Return the faults of the complete document with changes, by pointer."""
    try:
        TaskDocument.model_validate(COMPLETE | changes, context=FROM_OUTSIDE)
    except ValidationError as error:
        return {fault.pointer: fault.detail for fault in faults_of(error, TaskDocument)}
    return {}


# The task document


def test_the_documented_task_is_read() -> None:
    """The example of the documentation is a task, with instants and durations in microseconds."""
    task = TaskDocument.model_validate(COMPLETE, context=FROM_OUTSIDE)
    assert task.test.spec == COMPLETE["test"]["spec"]
    assert (task.schedule.repeat, task.schedule.slip) == (HOUR, 600 * SECOND)
    assert task.schedule.start == times.parse_instant("2026-12-01T00:00:00Z")
    assert task.reference == {"ticket": 4711}


def test_a_task_needs_no_more_than_a_test() -> None:
    """Everything but the test has a default: once, now, priority 0."""
    task = TaskDocument.model_validate({"test": {"type": "rtt"}}, context=FROM_OUTSIDE)
    assert (task.schedule.at(0), task.priority, task.tools) == (Schedule(), 0, ())


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"test": {}}, "/test/type"),
        ({"test": None}, "/test"),
        ({"test": {"type": "Throughput"}}, "/test/type"),
        ({"test": {"type": "rtt\n"}}, "/test/type"),
        ({"test": {"type": "rtt", "spec": []}}, "/test/spec"),
        ({"test": {"type": "rtt", "specs": {}}}, "/test/specs"),
        ({"tools": ["ping", "-f"]}, "/tools/1"),
        ({"tools": ["ping"] * 17}, "/tools"),
        ({"schedule": {"start": "soon"}}, "/schedule/start"),
        ({"schedule": {"start": "2026-13-01T00:00:00"}}, "/schedule/start"),
        ({"schedule": {"start": 1_790_000_000}}, "/schedule/start"),
        ({"schedule": {"until": True}}, "/schedule/until"),
        ({"schedule": {"repeat": "P1M"}}, "/schedule/repeat"),
        ({"schedule": {"repeat": 60}}, "/schedule/repeat"),
        ({"schedule": {"repeat": 1.5}}, "/schedule/repeat"),
        ({"schedule": {"slip": 60}}, "/schedule/slip"),
        ({"schedule": {"slip": "60"}}, "/schedule/slip"),
        ({"schedule": {"cron": "*" * 201}}, "/schedule/cron"),
        ({"schedule": {"max_runs": 0}}, "/schedule/max_runs"),
        ({"schedule": {"every": "PT1H"}}, "/schedule/every"),
        ({"priority": "10"}, "/priority"),
        ({"priority": 1.0}, "/priority"),
        ({"priority": True}, "/priority"),
        ({"priority": 2**31}, "/priority"),
        ({"participants": ["a.example", "--version"]}, "/participants/1"),
        ({"participants": "a.example"}, "/participants"),
        ({"participants": ["a.example"] * 33}, "/participants"),
        ({"campaign": ""}, "/campaign"),
        ({"archives": [{"archiver": "http", "runs": "some"}]}, "/archives/0/runs"),
        ({"archives": [{}]}, "/archives/0/archiver"),
        ({"a/b~c": 1}, "/a~1b~0c"),
    ],
)
def test_a_fault_has_the_pointer_of_its_field(changes: dict[str, Any], pointer: str) -> None:
    """One wrong field is one fault, with the pointer of that field and a sentence."""
    found = faults(changes)
    assert list(found) == [pointer]
    assert found[pointer]


def test_all_faults_are_told_at_once() -> None:
    """Three wrong fields are three faults, so that the user can correct them all at once."""
    found = faults({"test": {"spec": {}}, "priority": "high", "schedule": {"repeated": "PT1H"}})
    assert found == {
        "/test/type": "is required",
        "/schedule/repeated": "no such field; did you mean repeat?",
        "/priority": found["/priority"],
    }


@pytest.mark.parametrize("written", ["1m", "60s", "PT1M", "1 min", "PT60S"])
def test_durations_are_read_alike_everywhere(written: str) -> None:
    """A minute is a minute in tasks, reservations, and mesh files, in whatever form."""
    text = f'name = "lab"\n[schedules.x]\nrepeat = "{written}"'
    mesh = parse_mesh(text, toml=True).document
    assert mesh is not None
    read = [
        ScheduleTerms.model_validate({"repeat": written}, context=FROM_OUTSIDE).repeat,
        OccasionsDocument.model_validate({"repeat": written}, context=FROM_OUTSIDE).repeat,
        mesh.schedules["x"].repeat,
    ]
    assert read == [times.MINUTE] * 3
    assert TypeAdapter(Duration).dump_python(times.MINUTE, mode="json") == "PT1M"


def test_months_are_refused_with_a_hint() -> None:
    """The sentence says what to write instead of a duration whose length varies."""
    found = faults({"schedule": {"repeat": "P1M"}})
    assert found["/schedule/repeat"] == (
        "has months or years, which vary in length; use days (P30D) or a cron schedule"
    )


def test_pointers_begin_where_the_part_stands() -> None:
    """The faults of a spec that is validated alone have pointers into the task."""
    with pytest.raises(ValidationError) as caught:
        Schedule.model_validate({"slip": "long"})
    assert [fault.pointer for fault in faults_of(caught.value, Schedule, "/test/spec")] == [
        "/test/spec/slip"
    ]


@patient
@given(
    st.dictionaries(
        st.sampled_from(["start", "until"]), st.integers(times.EARLIEST, times.LATEST - 1)
    ),
    st.dictionaries(st.sampled_from(["repeat", "slip"]), st.integers(0, times.LONGEST)),
)
def test_a_schedule_comes_back_as_it_was(instants: dict[str, int], lengths: dict[str, int]) -> None:
    """A schedule that is written as JSON and read again is the same to the microsecond."""
    schedule = Schedule.model_validate(instants | lengths)
    written = schedule.model_dump(mode="json")
    assert Schedule.model_validate(written, context=FROM_OUTSIDE) == schedule
    assert Schedule.model_validate_json(schedule.model_dump_json()) == schedule


@patient
@given(st.integers(times.EARLIEST, times.LATEST - 1))
def test_an_instant_comes_back_as_it_was(instant: int) -> None:
    """An instant is RFC 3339 in JSON and microseconds in memory, and nothing is lost on the way."""
    assert INSTANT.validate_json(INSTANT.dump_json(instant)) == instant


@patient
@given(st.integers(0, times.LONGEST))
def test_a_duration_comes_back_as_it_was(duration: int) -> None:
    """A duration is ISO 8601 in JSON and microseconds in memory, and nothing is lost on the way."""
    assert DURATION.validate_json(DURATION.dump_json(duration)) == duration


@pytest.mark.parametrize("adapter", [INSTANT, DURATION])
@pytest.mark.parametrize("number", [0, 60, -1, 10**30])
def test_a_written_number_is_neither_instant_nor_duration(
    adapter: TypeAdapter[int], number: int
) -> None:
    """Numbers are refused from outside, where 60 would be ambiguous; the program may use them."""
    with pytest.raises(ValidationError, match="write"):
        adapter.validate_python(number, context=FROM_OUTSIDE)
    assert adapter.validate_python(number) == number


@patient
@given(st.sampled_from(sorted(COMPLETE)), st.text("abcdefg/~_", min_size=1, max_size=9))
def test_unknown_fields_are_refused_at_every_level(parent: str, name: str) -> None:
    """A misspelt field is never ignored, on any level."""
    escaped = name.replace("~", "~0").replace("/", "~1")
    found = faults({name: 1})
    assert [*found] == [f"/{escaped}"]
    assert found[f"/{escaped}"].startswith("no such field; ")
    if parent in {"test", "schedule"}:
        found = faults({parent: {"type": "rtt", name: 1} if parent == "test" else {name: 1}})
        assert [*found] == [f"/{parent}/{escaped}"]
        assert found[f"/{parent}/{escaped}"].startswith("no such field; ")


# Hosts


@pytest.mark.parametrize(
    "host",
    [
        "a",
        "a.example",
        "A.Example.",
        "xn--bcher-kva.example",
        "host_1.example",
        "192.0.2.7",
        "2001:db8::7",
        "::ffff:192.0.2.7",
        "a" * 63 + ".example",
    ],
)
def test_names_and_addresses_are_hosts(host: str) -> None:
    """Host names and addresses of both families are kept as they were written."""
    assert HOST.validate_python(host) == host


@pytest.mark.parametrize(
    "host",
    [
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "-f",
        "--help",
        "-oProxyCommand=id",
        "a.-b",
        "a-.b",
        "a b",
        " a",
        "a ",
        "a\n",
        "a\n.b",
        "a\x00",
        "a;reboot",
        "$(id)",
        "`id`",
        "a|b",
        "a&b",
        "a>b",
        "a'b",
        'a"b',
        "a\\b",
        "a/b",
        "../etc/passwd",
        "a:80",
        "user@a",
        "http://a",
        "[2001:db8::7]",
        "fe80::1%eth0",
        "fe80::1%$(id)",
        "192.0.2.0/24",
        "bücher.example",
        "a\u3002b",
        "\u0661.2.3.4",
        "a" * 64,
        ".".join(["a" * 60] * 5),
        7,
        None,
        True,
        ["a"],
    ],
)
def test_options_and_shell_lines_are_no_hosts(host: object) -> None:
    """Texts that could be an option, a path, or more than one word are refused as hosts."""
    with pytest.raises(ValidationError):
        HOST.validate_python(host)


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("", "is empty"),
        ("ünïcode.example", "write it as xn--ncode-cta3g.example"),
        ("ü..example", "not allowed in DNS names \\[type"),
        ("x" * 300, "has 300 characters; use at most 253"),
        (f"{'x' * 64}.example", "has 64 characters between two dots; use at most 63"),
        ("-x.example", "letters, digits, '-' within words"),
    ],
)
def test_what_is_wrong_with_a_name_is_told(host: str, told: str) -> None:
    """The fault of a name is its length, its letters with their form in DNS, or its syntax."""
    with pytest.raises(ValidationError, match=told):
        HOST.validate_python(host)


@patient
@given(st.text(max_size=20) | st.text(string.printable, max_size=20))
def test_a_host_is_one_plain_word(text: str) -> None:
    """An accepted host has only letters, digits, and ``._:-``, and does not begin with a hyphen."""
    try:
        host = HOST.validate_python(text)
    except ValidationError:
        return
    assert host == text
    assert set(host) <= set(string.ascii_letters + string.digits + "._:-")
    assert not host.startswith("-")
    assert host


# Problems


def kinds(kind: type[ParleyError] = ParleyError) -> Iterator[type[ParleyError]]:
    """Return every class of the hierarchy except the one that has faults."""
    if kind is not InvalidDocument:
        yield kind
    for child in kind.__subclasses__():
        if child.__module__ == ParleyError.__module__:
            yield from kinds(child)


@pytest.mark.parametrize("kind", list(kinds()))
def test_a_problem_comes_back_as_the_same_error(kind: type[ParleyError]) -> None:
    """Class, code, status, exit code, and sentence survive the way to another host."""
    sent = kind("the sentence, with what to do")
    body = problem_of(sent, "/v1/tasks").model_dump_json()
    received = error_of(Problem.model_validate_json(body))
    assert type(received) is kind
    assert (received.code, received.status) == (sent.code, sent.status)
    assert (received.exit_code, received.detail) == (sent.exit_code, sent.detail)


def test_the_faults_of_a_document_come_back() -> None:
    """An invalid document keeps each pointer and sentence."""
    sent = InvalidDocument([FieldFault("/a", "is required"), FieldFault("", "is wrong")])
    received = error_of(Problem.model_validate_json(problem_of(sent).model_dump_json()))
    assert isinstance(received, InvalidDocument)
    assert received.faults == sent.faults
    assert received.detail == "/a: is required (and 1 more)"


@pytest.mark.parametrize(("status", "kind"), [(418, RequestError), (500, PeerError)])
def test_an_unknown_problem_says_whose_fault_it_is(status: int, kind: type[ParleyError]) -> None:
    """The problem of a newer program is recognised by its status at least."""
    problem = Problem(type="about:blank", title="New", status=status, detail="so it is")
    received = error_of(problem)
    assert type(received) is kind
    assert received.detail == "so it is"


def test_every_error_has_a_code_of_its_own() -> None:
    """Codes are stable and distinct, since clients distinguish errors by them."""
    codes = [kind.code for kind in kinds()] + [InvalidDocument.code]
    assert len(set(codes)) == len(codes)


# Ids that are derived, and digests of them

TASKS = st.uuids().map(TaskId)
SLOTS = st.integers(times.EARLIEST, times.LATEST)
STARTS = st.dictionaries(st.integers(0, 6).map(lambda it: UUID(int=it)), st.integers(0, 3))


@patient
@given(TASKS, SLOTS, SLOTS, st.integers(1, 9), st.integers(1, 9))
def test_one_slot_and_attempt_is_one_run(
    task: TaskId, slot: int, other: int, attempt: int, another: int
) -> None:
    """A run's id is derived from task, slot, and attempt, and differs if one of them differs."""
    same = (slot, attempt) == (other, another)
    assert (run_id(task, slot, attempt) == run_id(task, other, another)) is same


@patient
@given(TASKS, st.integers(0, 9), st.integers(0, 9))
def test_each_claim_has_exchanges_of_its_own(task: TaskId, epoch: int, other: int) -> None:
    """A worker that lost its lease uses other exchange ids than its successor."""
    assert (exchange_id(task, epoch) == exchange_id(task, other)) is (epoch == other)


@patient
@given(STARTS, STARTS, st.randoms())
def test_a_fingerprint_tells_runs_apart(
    left: dict[UUID, int], right: dict[UUID, int], rng: Any
) -> None:
    """Two sides have the same fingerprint exactly if they have the same runs at the same times."""
    assert (fingerprint(left) == fingerprint(right)) is (left == right)
    shuffled = sorted(left)
    rng.shuffle(shuffled)
    assert fingerprint({run: left[run] for run in shuffled}) == fingerprint(left)


@patient
@given(STARTS, STARTS)
def test_each_run_that_differs_is_named_once(left: dict[UUID, int], right: dict[UUID, int]) -> None:
    """Runs that one side lacks, and runs at different times, are told apart; others are left."""
    found = differences(left, right)
    named = [*found.missing, *found.moved, *found.surplus]
    assert len(set(named)) == len(named)
    assert set(named) == {run for run, _ in left.items() ^ right.items()}
    assert {*found.missing} <= left.keys() - right.keys()
    assert {*found.surplus} <= right.keys() - left.keys()


@given(st.integers(1, 2 * times.DAY), st.integers(times.EARLIEST, times.LATEST - times.LONGEST))
def test_a_relative_start_is_fixed_when_the_task_is_created(step: int, now: int) -> None:
    """PT10M is ten minutes from creation; @PT1H is the next multiple of an hour since 1970."""
    written = times.format_duration(step)
    document = TaskDocument.model_validate(
        {
            "test": {"type": "idle"},
            "schedule": {"start": f"@{written}", "repeat": "PT1H", "until": written},
        },
        context=FROM_OUTSIDE,
    )
    assert document.model_dump(mode="json")["schedule"]["start"] == f"@{written}"
    schedule = document.schedule.at(now)
    assert schedule.start is not None
    assert schedule.start % step == 0
    assert schedule.start - step <= now < schedule.start
    assert schedule.until == now + step
    assert schedule.repeat == times.HOUR
    assert schedule.at(now + 5) == schedule


@pytest.mark.parametrize("start", ["PT", "@PT0S", "@", "P1M", "@tomorrow", "@2026-12-01T00:00:00Z"])
def test_what_is_no_relative_start(start: str) -> None:
    """A start that is neither an instant nor relative is refused at its field."""
    with pytest.raises(ValidationError) as caught:
        TaskDocument.model_validate(
            {"test": {"type": "idle"}, "schedule": {"start": start}}, context=FROM_OUTSIDE
        )
    assert [error["loc"] for error in caught.value.errors()] == [("schedule", "start")]


@pytest.mark.parametrize("name", ["\\u0000", "", "[key]", " "])
def test_an_unknown_field_of_any_name(name: str) -> None:
    """An unknown field is a fault whatever its name is."""
    document = b'{"items": [], "%b": 1}' % name.encode()
    with pytest.raises(ValidationError) as caught:
        Batch[ProposalRequest].model_validate_json(document)
    assert "no such field" in {it.detail.partition(";")[0] for it in faults_of(caught.value, Batch)}


def test_an_epoch_is_told_only_where_there_is_one() -> None:
    """The epoch of a conflict comes back; nodes of earlier versions see no such field elsewhere."""
    told = problem_of(Conflict("older", epoch=7)).model_dump_json()
    received = error_of(Problem.model_validate_json(told))
    assert isinstance(received, Conflict)
    assert received.epoch == 7
    assert "epoch" not in problem_of(Conflict("other")).model_dump(mode="json")
