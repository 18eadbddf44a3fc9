"""Tasks and runs of this node, read from its tables and told as documents of pScheduler.

A task that a client of pScheduler posted is told as it was posted, which is stored beside our task;
any other one is generated from our terms, in the words of the language of its test, or as it is if
pScheduler has no such test. Runs have states and times only here, and are translated each time. Two
things of ours are no runs there: an interval of a long run, and the time in which a run has no time
yet. Both are told as runs with ids of their own, derived from ours, so that a client finds them
again without a table. Secret texts are told only to whom posted them; lists of thousands are put
together as text, without parsing each document.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from node.model import secrets
from node.model.named_archives import visible_error
from node.model.recurrence import slip_of
from node.model.taskstate import TaskState
from node.model.times import SECOND, to_the_second
from node.pscheduler import documents, posted, times
from node.pscheduler.archives import own_archiver
from node.pscheduler.documents import Spoken, ToldRun
from node.pscheduler.private_members import (
    key_of,
    opened_document,
    sealed_document,
    told_document,
    whole_document,
)
from node.pscheduler.refusals import Refusal
from node.pscheduler.requesters import Requester
from node.pscheduler.tests.contract import Document, Outcome, PartOutcome
from node.pscheduler.tests.registry import LANGUAGES
from node.pscheduler.tools import archiver_enumeration, tool_enumeration
from node.service import NodeService
from node.store import archives, pscheduler, runs, tasks
from node.store.database import Record
from node.store.pscheduler import PostedFilter, PostedRecord, ToldFilter
from node.store.runs import KeptPart
from node.store.tasks import StoredTask
from node.trust.sealing import SealingKey

_INTERVALS_MAX = 2000
"""Maximum number of intervals of a task that are told at once."""


class ToldTask:
    """A task of this node, with its document if a client of pScheduler posted it."""

    def __init__(self, task: StoredTask, record: PostedRecord | None, key: SealingKey) -> None:
        """``record`` is None for a task that was created by other means."""
        self.task, self.record = task, record
        self.document = None if record is None else whole_document(key, record)
        self.key = None if record is None else key_of(key, record)
        self.spoken = self._spoken_test()

    @property
    def id(self) -> UUID:
        """The id of the task."""
        return self.task.id

    @property
    def streams(self) -> bool:
        """Return whether each interval of its runs counts as a run of its own."""
        return self.task.terms.scheduling_class == "background-multi"

    def _spoken_test(self) -> Spoken:
        if self.document is not None:
            test = told_document(self.document)["test"]
            language = LANGUAGES.get(test["type"])
            if language is not None:
                words = tuple(language.words(test["spec"]))
                return Spoken(test["type"], test["spec"], words, language)
        return spoken_of(self.task.terms.test, self.task.terms.spec)

    def participants(self, host: str) -> list[str]:
        """Return the participants as pScheduler names them; ``host`` is how this one was asked."""
        if self.document is not None and self.spoken.language is not None:
            named = self.spoken.language.participants(self.spoken.spec).names
            return [word or host for word in named]
        return [p.name for p in self.task.terms.participants] or [host]

    def shown(self, viewer: str | None = None, *, whole: bool = False) -> Document:
        """Return the document; private members are null unless the ``whole`` one is asked for.

        Secret texts are told only if the ``viewer`` asks from where it was posted, which
        recognises it by them.
        """
        if self.document is None:
            return documents.generated_task(self.task.terms, self.spoken)
        told = {k: v for k, v in self.document.items() if k != "participants"}
        if whole:
            return told
        is_own = self.record is not None and viewer == self.record.requester
        return dict(posted.without_private_members(told if is_own else told_document(told)))

    def static_detail(self, host: str) -> Document:
        """Return the facts that do not change."""
        if self.record is not None:
            return self.record.detail
        return documents.static_detail(
            self.task.terms,
            self.spoken,
            self.participants(host),
            {"requester": self.task.requester or self.task.lead},
            documents.NO_LIMITS,
        )


def spoken_of(test: str, spec: Document) -> Spoken:
    """Return a test of ours in the words of pScheduler, as it is if there are none."""
    spec = secrets.without_sealed(spec)
    for language in LANGUAGES.values():
        theirs = language.from_parley(test, spec)
        if theirs is not None:
            return Spoken(language.name, theirs, tuple(language.words(theirs)), language)
    return Spoken(test, spec, ())


class Shown(NamedTuple):
    """The form of a list of tasks: whole documents instead of URLs, each with its detail."""

    expanded: bool
    detail: bool


class Teller:
    """Reads tasks and runs, and tells them."""

    def __init__(self, node: NodeService) -> None:
        """Tell what is in the tables of ``node``."""
        self._node = node

    async def task(self, task: UUID) -> ToldTask:
        """Return a task.

        :raises Refusal: 404, it is unknown here.
        """
        found = await self.tasks([task])
        if not found:
            raise Refusal(404, "Task not found")
        return found[task]

    async def tasks(self, ids: Iterable[UUID]) -> dict[UUID, ToldTask]:
        """Return those of these tasks that are known here."""
        wanted = list(dict.fromkeys(ids))
        if not wanted:
            return {}
        async with self._node.database.connection() as connection:
            stored = await tasks.fetch_all(connection, wanted)
            records = await pscheduler.fetch(connection, wanted)
        key = self._node.core.sealing
        return {task.id: ToldTask(task, records.get(task.id), key) for task in stored}

    async def document(
        self,
        told: ToldTask,
        base: str,
        host: str,
        *,
        detail: bool,
        viewer: str | None = None,
        whole: bool = False,
    ) -> Document:
        """Return a task as it is answered to a ``viewer``, an address."""
        document = {**told.shown(viewer, whole=whole), **self._describe_details(told, base)}
        if detail:
            async with self._node.database.connection() as connection:
                counted = await pscheduler.count_runs(connection, told.id)
            document["detail"] = {
                **told.static_detail(host),
                **documents.changing_detail(
                    base,
                    told.id,
                    enabled=told.task.state == TaskState.ACTIVE,
                    runs=counted[0],
                    started=counted[1],
                ),
            }
        return document

    def _describe_details(self, told: ToldTask, base: str) -> Document:
        return {"tool": told.task.terms.tool, "href": f"{base}/tasks/{told.id}"}

    async def task_list(self, wanted: Any, base: str, shown: Shown, requester: Requester) -> bytes:
        """Return the posted tasks that contain a document, as a JSON list.

        Those that a requester sees; the secret texts of their own.

        :raises Refusal: 400, it is no object.
        """
        if not isinstance(wanted, dict):
            raise Refusal(400, "Argument 'json' must be an object.")
        rest = {name: each for name, each in wanted.items() if name not in {"detail", *_ADDED}}
        about = wanted.get("detail", {})
        if not isinstance(about, dict):
            return b"[]\n"
        fixed = {name: each for name, each in about.items() if name not in _CHANGING}
        enabled, only, key = about.get("enabled"), requester.sole_address, self._node.core.sealing
        if only is not None:  # others find no task by a guess of its secrets
            rest = sealed_document(key, rest)
        chosen = PostedFilter(
            document=posted.as_text(rest) if rest else None,
            requester=only,
            detail=posted.as_text(fixed) if fixed else None,
            enabled=enabled if isinstance(enabled, bool) else None,
        )
        async with self._node.database.connection() as connection:
            rows = await pscheduler.find_page(connection, chosen)
        edited = await self.tasks(row["task"] for row in rows if row["document"] is None)
        left = iter(range(documents.COMPARISONS_MAX))
        generated = {
            task: posted.as_text(shown_now)
            for task, told in edited.items()
            if documents.contains(shown_now := told.shown(), rest, left)
        }
        rows = [row for row in rows if row["document"] is not None or row["task"] in generated]
        compared = wanted if _needs_comparison_here(wanted, about) else None
        seen = [_row_for_viewer(dict(row), key, requester.address) for row in rows]
        # Thousands of documents take a while; the loop serves others in the meantime.
        return await asyncio.to_thread(_json_list, seen, generated, base, compared, shown)

    async def runs(self, told: ToldTask, wanted: ToldFilter) -> list[ToldRun]:
        """Return the runs of a task, by start; of long runs their intervals."""
        async with self._node.database.connection() as connection:
            rows = await pscheduler.find_runs(connection, wanted)
            pieces: Sequence[Record] = ()
            if told.streams:
                pieces = await pscheduler.find_intervals(
                    connection,
                    told.id,
                    wanted.ends_after if wanted.starts_after is None else wanted.starts_after,
                    wanted.ends_by if wanted.starts_before is None else wanted.starts_before,
                    _INTERVALS_MAX,
                )
        now = self._node.clock.now()
        found = [told_run(dict(row), told.task, now) for row in rows]
        found += [told_interval(told.id, dict(row)) for row in pieces]
        return sorted(found, key=lambda run: (run.starts_at, run.id))[: wanted.limit]

    async def run(self, told: ToldTask, run: UUID) -> ToldRun:
        """Return a run of a task with what it left behind.

        :raises Refusal: 404, it has none with this id.
        """
        async with self._node.database.connection() as connection:
            row = await pscheduler.find_run(connection, run, told.id)
            parts = [] if row is None else await runs.parts(connection, run)
        if row is None:
            return await self._derived_run(told, run)
        if row["state"] == "cancelled" and row["started_at"] is None:
            raise Refusal(404, "Run not found")
        return told_run(dict(row), told.task, self._node.clock.now(), parts)

    async def archivings(self, told: ToldTask, run: ToldRun, base: str) -> list[Document]:
        """Return what became of the result of a run at the archives that its task names."""
        named = (told.document or {}).get("archives", [])
        if not named or run.state not in documents.ENDED:
            return []
        async with self._node.database.connection() as connection:
            rows = await archives.deliveries(
                connection, archives.DeliveryFilter(run=run.id, whole_runs=True)
            )
        left = sorted(rows, key=lambda row: row["number"])
        told_ones = []
        for spec in named:
            own = own_archiver(spec["archiver"])
            row = next((row for row in left if row["archiver"] == own), None)
            if row is not None:
                left.remove(row)
            told_ones.append(archiving_document(posted.without_private_members(spec), row, base))
        return told_ones

    async def _derived_run(self, told: ToldTask, run: UUID) -> ToldRun:
        """Return an interval of a long run, or the time in which a run had no time yet."""
        async with self._node.database.connection() as connection:
            rows = await pscheduler.find_runs(connection, ToldFilter(told.id, waiting=True))
            pieces = await pscheduler.find_intervals(
                connection, told.id, None, None, _INTERVALS_MAX
            )
        for piece in pieces:
            if interval_id(piece["run"], piece["number"]) == run:
                return told_interval(told.id, dict(piece))
        for row in rows:
            if unplaced_id(row["id"]) == run:
                return unplaced_run(dict(row), told.task)
        raise Refusal(404, "Run not found")


_ADDED = frozenset({"tool", "href"})
_CHANGING = frozenset(
    {"enabled", "runs", "runs-started", "href", "runs-href", "first-run-href", "next-run-href"}
)
"""Members of a task that no table has in the form of JSON."""


def _needs_comparison_here(wanted: Mapping[str, Any], about: Mapping[str, Any]) -> bool:
    """Return whether a filter names members that the database cannot compare, only Python can."""
    enabled = about.get("enabled", True)
    others = (_CHANGING - {"enabled"}) & set(about)
    return bool(others or _ADDED & set(wanted) or not isinstance(enabled, bool))


def _json_list(
    rows: Sequence[Mapping[str, Any]],
    generated: Mapping[UUID, str],
    base: str,
    wanted: Document | None,
    shown: Shown,
) -> bytes:
    """Return rows of ``list_posted`` as a JSON list.

    The texts of thousands of documents are put together as they are, without reading them.
    """
    found, left = [], iter(range(documents.COMPARISONS_MAX))
    for row in rows:
        href = f"{base}/tasks/{row['task']}"
        document = row["document"] or generated[row["task"]]
        added = json.dumps({"tool": row["tool"], "href": href})
        changing = documents.changing_detail(
            base,
            row["task"],
            enabled=row["enabled"],
            runs=row["runs"],
            started=row["started"],
        )
        detail = f'"detail": {_joined_objects(row["detail"], json.dumps(changing))}'
        plain = _joined_objects(document, added)
        whole = f"{plain[:-1]}, {detail}}}"
        if wanted is not None and not documents.contains(json.loads(whole), wanted, left):
            continue
        if shown.expanded:
            found.append(whole if shown.detail else plain)
        else:
            found.append(json.dumps(href))
    return f"[{', '.join(found)}]\n".encode()


def _row_for_viewer(row: dict[str, Any], key: SealingKey, viewer: str) -> dict[str, Any]:
    """Return a row of ``list_posted`` with the secret texts of its document as a viewer sees them.

    Other documents stay as they are, without being read.
    """
    text = row["document"]
    if text is None or secrets.SEAL_PREFIX not in text:
        return row
    document = json.loads(text)
    is_own = row["requester"] == viewer
    told = opened_document(key, document) if is_own else told_document(document)
    return {**row, "document": posted.as_text(told)}


def _joined_objects(one: str, other: str) -> str:
    """Return the JSON object that has the members of two, neither of which is empty."""
    return f"{one[:-1]}, {other[1:]}"


def told_run(
    row: Mapping[str, Any], task: StoredTask, now: int, parts: Sequence[KeptPart] = ()
) -> ToldRun:
    """Return a row of ``told_run`` or ``told_runs``; one that waits for time is told as such."""
    if row["state"] == "waiting":
        return unplaced_run(row, task)
    state = documents.state_of(row["state"], row["starts_at"], now)
    outcome = Outcome(
        row["tool"],
        row["result"],
        row["reason"] if state == "failed" else None,
        [
            PartOutcome(part.name, part.command, part.output, part.result, part.reason)
            for part in parts
        ],
        row["starts_at"],
    )
    return replace(_bare_run(row), state=state, outcome=outcome)


def _bare_run(row: Mapping[str, Any]) -> ToldRun:
    """Return what all rows of runs tell, as of a run that does not start."""
    return ToldRun(
        id=row["id"],
        task=row["task"],
        state="nonstart",
        starts_at=row["starts_at"],
        ends_at=row["ends_at"],
        added_at=row["created_at"],
        priority=row["priority"],
        number=row["participant"] or 0,
        reason=row["reason"],
    )


def unplaced_run(row: Mapping[str, Any], task: StoredTask) -> ToldRun:
    """Return the time of a run in which it had no time, as a run that does not start."""
    until = row["starts_at"] + slip_of(task.terms.recurrence, task.terms.duration, row["starts_at"])
    trying = row["state"] == "waiting"
    then = f"still trying until {to_the_second(until)}" if trying else "no longer trying"
    sentence = f"{row['reason'] or 'There was no time at first'}; {then}"
    return replace(_bare_run(row), id=unplaced_id(row["id"]), reason=sentence, trying=trying)


def told_interval(task: UUID, row: Mapping[str, Any]) -> ToldRun:
    """Return an interval of a long run as a run of its own, which has no length, at its end."""
    ended = row["ends_at"] - row["ends_at"] % SECOND
    failure = None if row["result"] is not None else row["reason"]
    return ToldRun(
        id=interval_id(row["run"], row["number"]),
        task=task,
        state="finished" if row["result"] is not None else "failed",
        starts_at=ended,
        ends_at=ended,
        added_at=row["merged_at"],
        priority=row["priority"],
        number=row["participant"] or 0,
        reason=row["reason"],
        outcome=Outcome(row["tool"], row["result"], failure, at=row["ends_at"]),
    )


def interval_id(run: UUID, number: int) -> UUID:
    """Return the id of an interval of a long run, as a run."""
    return uuid5(run, str(number))


def unplaced_id(run: UUID) -> UUID:
    """Return the id of the time in which a run has no time; once it has, the run has its own."""
    return uuid5(run, "nonstart")


def archiving_document(spec: Document, row: Record | None, base: str) -> Document:
    """Return the delivery of a run's result to an archive; None is one that is not made."""
    delivered = row is not None and row["state"] == "delivered"
    error = None if row is None else visible_error(None, row["last_error"])
    attempted = None if row is None or row["tried_at"] is None else row["tried_at"]
    at = None if attempted is None else times.format_instant(attempted)
    told: Document = {"succeeded": delivered} | ({} if delivered else {"error": error or ""})
    attempt = {"time": at, "return-code": int(not delivered), "stdout": told, "stderr": ""}
    return {
        "spec": spec,
        "archiver": archiver_enumeration(spec["archiver"], base),
        "archiver_data": spec.get("data", {}),
        "completed": row is None or row["state"] != "waiting",
        "archived": delivered,
        "last_attempt": at,
        "diags": [attempt] if at is not None else [],
    }


def tool_document(told: ToldTask, base: str) -> Document | None:
    """Return the description of the tool of a task; None while none is chosen."""
    tool = told.task.terms.tool
    return None if tool is None else tool_enumeration(tool, base)
