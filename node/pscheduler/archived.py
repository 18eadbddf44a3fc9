"""Results in the form in which archives of pScheduler expect them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from node.pscheduler import answers, documents, posted
from node.pscheduler.documents import ToldRun
from node.pscheduler.routing import ROOT
from node.pscheduler.telling import Teller, ToldTask, told_interval, told_run
from node.pscheduler.tests.contract import Document
from node.results.delivery import NoDocument
from node.runtime.version import program_version
from node.service import NodeService
from node.store import runs
from node.store.database import Record

FORM = "pscheduler"
"""The name of the form."""

_LEFT_OUT = frozenset({"archivings", "participant-data", "participant-data-full", "result"})


class ArchivedForm:
    """Writes the documents of deliveries; the links in them lead to the façade of this node."""

    def __init__(self, node: NodeService) -> None:
        """``node`` has the tasks and runs."""
        self._node = node
        self._teller = Teller(node)

    async def documents(self, rows: Sequence[Record]) -> Sequence[bytes | NoDocument]:
        """Return the document of each row, or why there is none."""
        tasks = await self._teller.tasks(row["task_id"] for row in rows)
        parts: dict[UUID, list[runs.KeptPart]] = {}
        shown: dict[tuple[UUID, str], Document] = {}
        for row in rows:
            task, host = tasks.get(row["task_id"]), self._host(row)
            if task is not None and (task.id, host) not in shown:
                shown[task.id, host] = await self._teller.document(
                    task, f"https://{host}/{ROOT}", host, detail=True
                )
            if row["interval"] is None:
                async with self._node.database.connection() as connection:
                    parts[row["run_id"]] = await runs.parts(connection, row["run_id"])
        return await asyncio.to_thread(self._written_documents, rows, tasks, shown, parts)

    def _host(self, row: Record) -> str:
        host: str | None = row["form"].get("uri_host")
        listen = self._node.settings.pscheduler_listen or ""
        port = listen.rpartition(":")[2]
        own = self._node.card.address
        written = f"[{own}]" if ":" in own else own
        return host or (written if port in {"", "443"} else f"{written}:{port}")

    def _written_documents(
        self,
        rows: Sequence[Record],
        tasks: Mapping[UUID, ToldTask],
        shown: Mapping[tuple[UUID, str], Document],
        parts: Mapping[UUID, Sequence[runs.KeptPart]],
    ) -> list[bytes | NoDocument]:
        written: list[bytes | NoDocument] = []
        for row in rows:
            task = tasks.get(row["task_id"])
            if task is None:
                written.append(NoDocument("its task was deleted"))
                continue
            run = self._told_run(row, task, parts.get(row["run_id"], ()))
            host = self._host(row)
            document = _delivery_document(
                run, task, shown[task.id, host], f"https://{host}/{ROOT}", host
            )
            written.append(
                answers.encoded_json(posted.without_private_members(document)).rstrip(b"\n")
            )
        return written

    def _told_run(self, row: Record, task: ToldTask, parts: Sequence[runs.KeptPart]) -> ToldRun:
        values: dict[str, Any] = dict(row)
        values |= {
            "id": row["run_id"],
            "run": row["run_id"],
            "task": task.id,
            "number": row["interval"],
            "participant": 0,
            "created_at": row["changed_at"],
            "merged_at": row["finished_at"],
        }
        if row["interval"] is not None:
            return told_interval(task.id, values)
        return told_run(values, task.task, self._node.clock.now(), parts)


def _delivery_document(
    run: ToldRun, task: ToldTask, shown: Document, base: str, host: str
) -> Document:
    whole = documents.run_document(run, task.spoken, task.participants(host), base)
    tool = run.outcome.tool if run.outcome is not None else None
    return {
        "id": str(run.id),
        "schedule": {"start": whole["start-time"], "duration": whole["duration"]},
        "test": {"type": task.spoken.test, "spec": task.spoken.spec},
        "tool": {"name": tool or task.task.terms.tool, "version": program_version()},
        "run": {name: value for name, value in whole.items() if name not in _LEFT_OUT},
        "task": {name: value for name, value in shown.items() if name != "archives"},
        "participants": whole["participants"],
        "result": whole["result-merged"],
        "reference": shown.get("reference"),
    }
