"""The contents of a node on an ordinary day, for tests and pictures of the page."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from node.model import ids, times
from node.model.classes import SchedulingClass
from node.model.headline import headline
from node.model.wire.archives import Backlog
from node.model.wire.campaigns import Campaign, Used, Waiting
from node.model.wire.runs import Decision, Explanation, MetricView, PartView, Run
from node.model.wire.seats import SeatCount, SeatRequest
from node.model.wire.tasks import Participant, Schedule, Task, TestChoice
from tests.support.page_stand_in import NAMESPACE, NOW, StandIn, identity_of

if TYPE_CHECKING:
    from collections.abc import Iterator

CAUSE = "iperf3 on b.example could not listen on port 5203: address already in use"
FIGURES: dict[str, dict[str, Any]] = {
    "rtt": {
        "address": "198.51.100.7",
        "sent": 10,
        "received": 10,
        "loss": 0.0,
        "rtt_ms": {"min": 20.11, "median": 20.41, "p95": 21.3, "max": 21.87, "stddev": 0.42},
        "jitter_ms": 0.2,
        "errors": [],
    },
    "throughput": {
        "protocol": "tcp",
        "rate_bps": 941_300_000,
        "sent": {"bytes": 1_178_599_424, "duration_ms": 10_000.1, "retransmits": 12},
        "rtt_ms": {"min": 20.2, "mean": 24.9, "max": 31.4},
        "cpu": {"source": 0.21, "dest": 0.34},
        "intervals": [
            {"start_ms": 1000.0 * n, "end_ms": 1000.0 * (n + 1), "rate_bps": 93e7 + n * 1e6}
            for n in range(10)
        ],
    },
}
UNITS = {
    "rtt": {"rtt_median_ms": (20.41, "ms"), "loss": (0.0, "1")},
    "throughput": {"throughput_bps": (941_300_000.0, "bit/s"), "retransmits": (12.0, "segments")},
}
SUMMARIES = {
    "rtt": "20.41 ms, loss 0 %, jitter 0.20 ms",
    "latency": "10.32 ms there, 10.08 ms back, loss 0 % / 0 %, jitter 0.11 ms",
    "throughput": "941 Mb/s, 12 retransmits (cubic)",
    "idle": "3 hosts idled for 30 s",
}


def task_of(test: str, *names: str, **fields: Any) -> Task:
    """Return an active task between nodes of these names, repeating every five minutes."""
    spec: dict[str, Any] = fields.pop("spec", {"source": names[0], "dest": names[-1]})
    participants = tuple(
        Participant(
            node=identity_of(name), name=name, url=f"http://{name}:8642", address="192.0.2.1"
        )
        for name in names
    )
    base: dict[str, Any] = {
        "id": uuid5(NAMESPACE, f"{test} {names} {sorted(spec.items())}"),
        "headline": headline(test, names, spec, fields.get("pool")),
        "state": "active",
        "reason": None,
        "test": TestChoice(type=test, spec=spec),
        "tool": {"rtt": "ping", "latency": "stamp", "throughput": "iperf3"}.get(test),
        "tools": (),
        "schedule": Schedule(repeat=5 * times.MINUTE, start=NOW - times.DAY),
        "priority": 0,
        "scheduling_class": SchedulingClass.NORMAL,
        "duration": 11 * times.SECOND,
        "participants": participants,
        "lead": "a.example",
        "led_here": True,
        "campaign": None,
        "reference": None,
        "created_at": NOW - times.DAY,
        "ended_at": None,
        "next_run_at": None,
        "planned": True,
        "runs": {},
    }
    return Task(**(base | fields))


def run_of(task: Task, starts_at: int, state: str, **fields: Any) -> Run:
    """Return a run of a task, with what its state implies: a result, the time it actually began."""
    begun = state in {"running", "merging", "finished", "failed"}
    over = state in {"finished", "failed"}
    base: dict[str, Any] = {
        "id": ids.run_id(ids.TaskId(task.id), starts_at, 1),
        "task": task.id,
        "headline": task.headline,
        "test": task.test.type,
        "tool": task.tool,
        "state": state,
        "reason": None,
        "scheduling_class": task.scheduling_class,
        "priority": task.priority,
        "starts_at": starts_at,
        "ends_at": starts_at + task.duration,
        "slot": starts_at,
        "attempt": 1,
        "participants": tuple(participant.name for participant in task.participants),
        "participant": 0,
        "lead": task.lead,
        "started_at": starts_at + 310 if begun else None,
        "finished_at": starts_at + task.duration - times.SECOND if over else None,
        "start_error_ms": 0.31 if begun else None,
        "displaced_by": None,
        "summary": SUMMARIES.get(task.test.type) if state == "finished" else None,
        "result": FIGURES.get(task.test.type, {}) if state == "finished" else None,
        "metrics": tuple(metrics_of(task, starts_at)) if state == "finished" else (),
    }
    return Run(**(base | fields))


def metrics_of(task: Task, starts_at: int) -> Iterator[MetricView]:
    """Return the figures of a run, a little different in each."""
    for name, (value, unit) in UNITS.get(task.test.type, {}).items():
        drift = 1 + starts_at // times.MINUTE % 7 / 100
        yield MetricView(name=name, value=value * drift, unit=unit, labels={})


def series(task: Task, every: int, *, past: int, ahead: int) -> Iterator[Run]:
    """Return the runs of a repeating task, finished up to now and scheduled from then on."""
    first = NOW - past + (task.id.int % 40) * times.SECOND
    for starts_at in range(first, NOW + ahead, every):
        if starts_at + task.duration <= NOW:
            yield run_of(task, starts_at, "finished")
        elif starts_at > NOW:
            yield run_of(task, starts_at, "scheduled")


def ordinary_day(stand_in: StandIn) -> None:
    """Fill a stand-in with the contents of a busy but healthy node."""
    day = _ordinary_day()
    stand_in.nodes = list(day.nodes)
    stand_in.tasks = dict(day.tasks)
    stand_in.runs = dict(day.runs)
    stand_in.explanations = dict(day.explanations)
    stand_in.campaigns = list(day.campaigns)


@cache
def _ordinary_day() -> StandIn:
    stand_in = StandIn()
    stand_in.nodes += [
        stand_in.node("b.example"),
        stand_in.node("c.example"),
        stand_in.node("lab-7.campus.example", error="no answer within 5 s"),
    ]
    rtt = task_of("rtt", "a.example", spec={"dest": "198.51.100.7"})
    latency = task_of("latency", "a.example", "b.example", duration=40 * times.SECOND)
    throughput = _throughput_task()
    for task, minutes in ((rtt, 5), (latency, 10), (throughput, 20), *_background_tasks()):
        _plan(stand_in, task, minutes)
    _trouble(stand_in, throughput, latency)
    for task, ago in ((latency, 24), (rtt, 11)):
        state = "running" if task is latency else "merging"
        run = run_of(task, NOW - ago * times.SECOND, state)
        stand_in.runs[run.id] = run
    stand_in.campaigns = _campaigns()
    reason = "c.example has no tool for throughput: install the package iperf3 there"
    refused = task_of("throughput", "a.example", "c.example", state="refused", reason=reason)
    stand_in.tasks[refused.id] = refused
    return stand_in


def campaign_of(name: str, promised: float | None, *shares: float, **fields: Any) -> Campaign:
    """Return a campaign with these delivered and booked shares."""
    delivered, booked = shares
    base: dict[str, Any] = {
        "name": name,
        "revision": 1,
        "created_at": NOW - times.DAY,
        "changed_at": NOW - times.DAY,
        "tasks": {"active": 3},
        "waiting": Waiting(runs=0, tasks=0, reason=None),
        "used": Used(
            promised=promised,
            delivered=delivered,
            booked=booked,
            delivered_seat_seconds=86_400 * delivered,
            booked_seat_seconds=86_400 * booked,
        ),
    }
    return Campaign(**(base | fields))


def _campaigns() -> list[Campaign]:
    waiting = Waiting(
        runs=4, tasks=1, reason="b.example is busy with exclusive runs until 12:14:00"
    )
    return [
        campaign_of("default", 0.2, 0.31, 0.2, waiting=waiting),
        campaign_of("ops", 0.6, 0.55, 0.62, weight=3, target={"seats": 20}),
        campaign_of("ops-lab", 0.2, 0.11, 0.25, parent="ops"),
        campaign_of("outage", None, 0.02, 0.0, level="urgent"),
        campaign_of("thesis", 0.2, 0.12, 0.18, state="closed", tasks={"finished": 9}),
    ]


def _throughput_task() -> Task:
    return task_of(
        "throughput",
        "a.example",
        "b.example",
        scheduling_class=SchedulingClass.EXCLUSIVE,
        duration=4 * times.MINUTE,
        priority=10,
        schedule=Schedule(cron="*/20 * * * *", timezone="Europe/Berlin", slip=10 * times.MINUTE),
    )


def _background_tasks() -> Iterator[tuple[Task, int]]:
    yield (
        task_of(
            "latency",
            *("c.example", "a.example"),
            scheduling_class=SchedulingClass.BACKGROUND,
            duration=3 * times.MINUTE,
        ),
        6,
    )
    yield (
        task_of(
            "idle",
            *("a.example", "b.example", "c.example"),
            scheduling_class=SchedulingClass.BACKGROUND_MULTI,
            duration=25 * times.MINUTE,
            spec={"duration": "PT25M"},
        ),
        15,
    )


def with_seats(stand_in: StandIn) -> None:
    """Add a pool task with an empty seat, and the ordinary tasks of the other seats."""
    schedule = Schedule(repeat=30 * times.MINUTE, start=NOW - 3 * times.HOUR)
    why = "b.example: no 11 s free: busy with an exclusive throughput run of priority 10"
    fields: dict[str, Any] = {"schedule": schedule, "campaign": "ops"}
    whole = task_of(
        "rtt",
        "a.example",
        **{"spec": {"dest": "203.0.113.9"}, **fields},
        participants=(),
        pool=SeatRequest(pool="europe", k=3, spread={"site": 1}),
        seats=SeatCount(wanted=3, taken=2, reason=why, term=NOW, until=NOW + times.HOUR),
    )
    counts: Counter[str] = Counter()
    for name in ("a.example", "c.example"):
        spec = {"source": name, "dest": "203.0.113.9"}
        part = task_of("rtt", name, spec=spec, parent=whole.id, **fields)
        stand_in.tasks[part.id] = part
        for run in series(part, 30 * times.MINUTE, past=170 * times.MINUTE, ahead=3 * times.HOUR):
            stand_in.runs[run.id] = run
            counts[run.state] += 1
    next_run_at = min(run.starts_at for run in stand_in.runs.values() if run.starts_at > NOW)
    shown = {"runs": dict(counts), "next_run_at": next_run_at}
    stand_in.tasks[whole.id] = whole.model_copy(update=shown)


def _plan(stand_in: StandIn, task: Task, minutes: int) -> None:
    runs = list(series(task, minutes * times.MINUTE, past=times.DAY, ahead=times.DAY))
    stand_in.runs.update((run.id, run) for run in runs)
    counts = Counter(run.state for run in runs)
    repeat = None if task.schedule.cron else minutes * times.MINUTE
    update = {
        "runs": dict(counts),
        "next_run_at": min(run.starts_at for run in runs if run.state == "scheduled"),
        "schedule": task.schedule.model_copy(update={"repeat": repeat}),
    }
    stand_in.tasks[task.id] = task.model_copy(update=update)


def failed_run(task: Task, starts_at: int) -> Run:
    """Return a throughput run whose second participant could not listen."""
    parts = (
        PartView(
            participant=0,
            name="a.example",
            result=None,
            reason="the server part never came up",
            started_at=starts_at + 310,
            finished_at=starts_at + 9 * times.SECOND,
            command=("iperf3", "--client", "192.0.2.2", "--port", "5203", "--json"),
            output='{"error": "unable to connect to server: Connection refused"}',
        ),
        PartView(
            participant=1,
            name="b.example",
            result=None,
            reason="iperf3 could not listen on port 5203: address already in use",
            started_at=starts_at + 280,
            finished_at=starts_at + times.SECOND,
            command=("iperf3", "--server", "--one-off", "--port", "5203", "--json"),
            output="iperf3: error - unable to start listener: Address already in use",
        ),
    )
    return run_of(task, starts_at, "failed", reason=CAUSE, parts=parts)


def explanation_of(run: Run) -> Explanation:
    """Return the explanation of a run's placement."""
    decision = Decision(
        id=17,
        task=run.task,
        first_at=run.starts_at - times.HOUR,
        decided_at=run.starts_at - times.HOUR,
        times=1,
        outcome="committed",
        sentence="72 of 72 windows placed; nothing stood in the way.",
        asked=72,
        placed=72,
        first_slot=run.slot,
        last_slot=run.slot + 23 * times.HOUR,
        trace={
            "windows": [[run.slot, run.slot + 10 * times.MINUTE]],
            "offers": [
                {"node": "a.example", "free": "everything", "obstacles": [], "reason": None},
                {
                    "node": "b.example",
                    "free": [[run.slot, run.slot + 4 * times.MINUTE]],
                    "obstacles": [
                        {
                            "window": 0,
                            "test": "throughput",
                            "scheduling_class": "exclusive",
                            "priority": 5,
                            "starts_at": run.slot + 4 * times.MINUTE,
                            "ends_at": run.slot + 12 * times.MINUTE,
                        }
                    ],
                    "reason": None,
                },
            ],
            "choices": [[run.slot, run.slot, False]],
        },
    )
    sentence = "It was booked at its nominal start and failed while it ran."
    return Explanation(
        task=run.task,
        run=run.id,
        headline=run.headline,
        state=run.state,
        sentence=sentence,
        decisions=(decision,),
    )


def _trouble(stand_in: StandIn, throughput: Task, latency: Task) -> None:
    past = sorted(
        (
            run
            for run in stand_in.runs.values()
            if run.task == throughput.id and run.starts_at < NOW
        ),
        key=lambda run: run.starts_at,
    )
    failed = failed_run(throughput, past[-1].starts_at)
    missed = run_of(
        throughput,
        past[-2].starts_at,
        "missed",
        reason="this node was down from 11:14:58 to 11:31:06 and was not there at the start",
    )
    displaced = run_of(
        latency,
        NOW - 4 * times.MINUTE,
        "displaced",
        reason="throughput a.example → b.example with priority 10 took its time; "
        "planned again at 12:06:30",
    )
    waiting = run_of(
        throughput,
        NOW + 9 * times.MINUTE,
        "waiting",
        reason="b.example is busy with exclusive runs until 12:14:00; tried again at 12:01:00",
    )
    for run in (failed, missed, displaced, waiting):
        stand_in.runs[run.id] = run
    stand_in.explanations[failed.id] = explanation_of(failed)


def crowded_day(stand_in: StandIn) -> None:
    """Return three tasks each minute for a day: more than 4,000 runs."""
    ordinary_day(stand_in)
    for number in range(3):
        spec = {"dest": f"203.0.113.{number + 1}"}
        task = task_of("rtt", "a.example", spec=spec, schedule=Schedule(repeat=times.MINUTE))
        stand_in.tasks[task.id] = task
        for run in series(task, times.MINUTE, past=4 * times.HOUR, ahead=times.DAY):
            bad = run.state == "finished" and run.id.int % 23 == 0
            reason = "no answer from 203.0.113.1: destination unreachable"
            update = {"state": "failed", "reason": reason, "summary": None} if bad else {}
            stand_in.runs[run.id] = run.model_copy(update=update)


def the_failed(stand_in: StandIn) -> UUID:
    """Return the id of the failed run of an ordinary day."""
    return next(run.id for run in stand_in.runs.values() if run.reason == CAUSE)


BACKLOG = Backlog(
    destination=7,
    archiver="http",
    label="https://collector.example/in",
    archives=("hook",),
    tasks=2,
    waiting=3,
    parked=41,
    oldest_at=NOW - times.HOUR,
    next_at=NOW + times.MINUTE,
    last_error="refused: 404 Not Found",
    last_error_at=NOW,
)
"""A destination with parked and waiting deliveries."""
