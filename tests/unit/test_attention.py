"""Each thing that needs attention is told with the next command."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.cli.status import status_view
from node.model.attention import OLD_ID, Condition, attention
from node.model.leads import LeadState
from node.model.readiness import Readiness
from node.model.times import MINUTE, SECOND
from node.model.wire.nodes import ClockState
from node.model.wire.status import (
    BacklogStatus,
    BackupStatus,
    DatabaseStatus,
    DiskStatus,
    LeadStatus,
    LoadStatus,
    NodeStatus,
    PeerAway,
    PlanningStatus,
    RunsStatus,
)
from tests.support.clocks import START

READY = Readiness(START, START, 1, None, "/var/lib/parley", 1 << 40, None)
CLOCK = ClockState(now=START, synchronised=True, error_bound_ms=2.5)
DATABASE = DatabaseStatus(
    place="127.0.0.1:5432",
    server_version="15.3",
    size_bytes=123_000_000,
    answer_ms=1.2,
    schema_version=7,
    program_schema_version=7,
    refused_write=None,
)
LEAD = LeadStatus(
    owner="host:1",
    state=LeadState.PLANNING,
    version="0.3.0",
    started_at=START,
    seen_at=START,
    heartbeat_age=3 * SECOND,
    workers=50,
    leases=2,
    oldest_lease_age=SECOND,
    takeovers=0,
    took_over_at=None,
)
BACKLOG = BacklogStatus(messages=0, results_waiting=0, results_parked=0)
SOUND = Condition(
    readiness=READY,
    clock=CLOCK,
    database=DATABASE,
    leads=[LEAD],
    peers_away=(),
    backlog=BACKLOG,
    lease=30 * SECOND,
    error_limit=SECOND,
)
SILENT = LEAD.model_copy(
    update={"owner": "host:2", "state": LeadState.SILENT, "heartbeat_age": 5 * MINUTE}
)


STATUS = NodeStatus(
    name="a",
    identity="ed25519:" + "A" * 43,
    url=None,
    version="0.3.0",
    started_at=START - 90 * MINUTE,
    clock=CLOCK,
    database=DATABASE,
    leads=(LEAD, SILENT),
    planning=PlanningStatus(
        due_tasks=2,
        oldest_due=3 * SECOND,
        waiting_for_nodes=1,
        planned_at=START,
        plan_age=4 * SECOND,
    ),
    runs=RunsStatus(running=1, next_start=START + 20 * SECOND),
    peers=2,
    peers_away=(PeerAway(name="b", since=START, reason="no route"),),
    backlog=BACKLOG,
    disk=DiskStatus(directory="/var/lib/parley", free_bytes=10**9, total_bytes=10**11),
    load=LoadStatus(processors=4, one_minute=0.5),
    backup=BackupStatus(wanted=True, latest_at=START - 3 * MINUTE, fault=None),
    attention=tuple(attention(replace(SOUND, leads=[LEAD, SILENT]))),
)


def test_a_node_that_is_well_needs_nothing() -> None:
    """Nothing is told of a node without faults."""
    assert attention(SOUND) == []


@pytest.mark.parametrize(
    ("condition", "what", "command"),
    [
        (
            replace(SOUND, readiness=replace(READY, leads=0)),
            "no lead plans the tasks of this node",
            "systemctl start parley-lead",
        ),
        (
            replace(SOUND, leads=[LEAD, SILENT]),
            "the lead host:2 was not told to stop, and has not been heard for 5 min",
            "systemctl status parley-lead",
        ),
        (
            replace(SOUND, leads=[LEAD.model_copy(update={"oldest_lease_age": 3 * MINUTE})]),
            "nobody takes over 2 tasks of the lead host:1",
            "journalctl -u parley-lead -n 50",
        ),
        (
            replace(SOUND, clock=CLOCK.model_copy(update={"synchronised": False})),
            "the clock of this host is not synchronised",
            "timedatectl",
        ),
        (
            replace(SOUND, clock=CLOCK.model_copy(update={"error_bound_ms": 1500.0})),
            "the clock of this host may be wrong by 1500 ms",
            "chronyc tracking",
        ),
        (
            replace(SOUND, database=DATABASE.model_copy(update={"schema_version": 8})),
            "the database has schema version 8, and this program's is 7",
            "systemctl restart parley-node parley-lead",
        ),
        (
            replace(SOUND, database=DATABASE.model_copy(update={"sorts_otherwise": True})),
            "the library by which the database's server sorts texts was upgraded since its",
            "parley admin repair",
        ),
        (
            replace(SOUND, database=DATABASE.model_copy(update={"oldest_id_age": OLD_ID + 1})),
            "the oldest transaction id of the database's server is 1500000001 transactions old",
            "vacuumdb --all --freeze",
        ),
        (
            replace(SOUND, unread={"planning": "it is damaged", "leads": "it is damaged"}),
            "it is damaged (not read: planning, leads)",
            "journalctl -u parley-node -n 50",
        ),
        (
            replace(SOUND, readiness=replace(READY, damage="it takes no change")),
            "it takes no change",
            "journalctl -u parley-node -n 50",
        ),
        (
            replace(SOUND, peers_away=[PeerAway(name="b", since=START, reason="no route")]),
            "b does not answer since 2",
            "parley doctor b",
        ),
        (
            replace(
                SOUND,
                peers_away=[
                    PeerAway(name="b", since=START, reason="b does not know this node: why")
                ],
            ),
            "b does not know this node: why",
            "parley doctor b",
        ),
        (
            replace(SOUND, backlog=BACKLOG.model_copy(update={"results_parked": 4})),
            "4 results could not be delivered",
            "parley archive backlog",
        ),
        (
            replace(SOUND, readiness=replace(READY, warnings=("no backup could be made: x",))),
            "no backup could be made: x",
            "journalctl -u parley-node -n 50",
        ),
    ],
)
def test_each_thing_has_the_next_command(condition: Condition, what: str, command: str) -> None:
    """Each thing is told once, with a command."""
    [told] = attention(condition)
    assert told.what.startswith(what)
    assert told.command.startswith(command)


def test_what_fails_comes_before_a_clock() -> None:
    """People see first which node does not answer, and what they know for months after it."""
    away = PeerAway(name="b", since=START, reason="no route")
    clock = SOUND.clock.model_copy(update={"synchronised": False})
    told = attention(replace(SOUND, peers_away=[away], clock=clock))
    assert [each.subject for each in told] == ["nodes", "clock"]


def test_a_silent_lead_is_not_told_twice() -> None:
    """If no lead plans, that is told, and not of each lead."""
    condition = replace(SOUND, readiness=replace(READY, leads=0), leads=[SILENT])
    assert [each.command for each in attention(condition)] == ["systemctl start parley-lead"]


def test_the_screen_has_it_all() -> None:
    """People see each part on a line, and what needs attention at the end."""
    lines = status_view(STATUS.model_dump(mode="json")).splitlines()
    for line in (
        "node        a, version 0.3.0, up 1 h 30 min",
        "reached at  nowhere: it fetches its work itself",
        "database    Postgres 15.3 at 127.0.0.1:5432, 123 MB, answers in 1.2 ms",
        "schema      version 7",
        "disk        1 GB of 100 GB free, nearly full (/var/lib/parley)",
        "load        0.5 on 4 processors",
        "backup      made 3 min ago",
        "leads       host:1 planning, heard 3 s ago, 2 of 50 workers busy, oldest lease 1 s old",
        (
            "planning    2 tasks due, the first for 3 s, 1 wait for a node, "
            "the last was planned 4 s ago"
        ),
        "runs        1 now, the next in 20 s",
        "nodes       2 others known, 1 away: b",
        "backlog     0 messages to other nodes, 0 results to archives",
        "1 thing needs attention:",
        "    → systemctl status parley-lead",
    ):
        assert line in lines


def test_the_screen_says_what_cannot_be_read() -> None:
    """Parts for which the database does not answer are named, and the others are shown."""
    unread = {"planning": None, "runs": None, "backlog": None, "leads": None}
    database = DATABASE.model_copy(update={"server_version": None, "schema_version": None})
    status = STATUS.model_copy(update={**unread, "database": database})
    lines = status_view(status.model_dump(mode="json")).splitlines()
    shown = {line.split()[0] for line in lines if "cannot be read" in line}
    assert shown == {"database", "schema", "leads", "planning", "runs", "outcomes", "backlog"}
    assert any(line.startswith("disk ") and "GB" in line for line in lines)
