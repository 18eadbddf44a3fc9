"""Secrets that earlier programs stored in clear: sealed once, soon after a node has started.

SQL has no key, so this is no step of the schema. It can be repeated, and stopped at any place. What
it leaves in clear: the specs of open tasks that another node leads, until that node introduces them
again; archives whose archiver is not installed; and what earlier edits and logs have told.
"""

from __future__ import annotations

import json
from typing import Any

import structlog

from node.execution.catalog import Capabilities
from node.execution.spec_secrets import SpecSecrets
from node.model.secrets import REDACTED, SEAL_PREFIX, is_sealed, secret_fields
from node.results.archives import digest_of
from node.results.sealing import sealed_spec
from node.store import sealing
from node.store.core import Core
from node.store.database import Connection
from node.store.sealing import PostedSecrets
from node.trust.sealing import MEMBERSHIP, POSTED, WEBHOOK

log = structlog.get_logger()


class UnsealedSecrets:
    """Seals what stands in clear in the database of a node."""

    def __init__(self, core: Core, capabilities: Capabilities) -> None:
        """Seal with the key of this host."""
        self._core = core
        self._specs = SpecSecrets(core, capabilities)
        marked = {name: secret_fields(test.spec_model) for name, test in capabilities.tests.items()}
        self._tests = sorted(name for name, fields in marked.items() if fields)
        self._fields = sorted({field for fields in marked.values() for field in fields})

    async def seal(self) -> None:
        """Seal all of it, in one transaction for each kind."""
        count = 0
        for kind in (
            self._seal_archives,
            self._seal_webhooks,
            self._seal_posted,
            self._seal_memberships,
            self._seal_tasks,
            self._seal_runs,
        ):
            async with self._core.database.transaction() as connection:
                count += await kind(connection)
        if count:
            log.info("secrets that stood in clear were sealed", rows=count)

    async def _seal_archives(self, connection: Connection) -> int:
        count = 0
        for row in await sealing.destinations(connection):
            spec = sealed_spec(self._core.sealing, row["archiver"], row["spec"])
            if spec != row["spec"]:
                digest = digest_of(row["archiver"], spec)
                await sealing.seal_destination(connection, row["id"], spec, digest)
                count += 1
        return count

    async def _seal_webhooks(self, connection: Connection) -> int:
        clear = await sealing.unsealed_webhooks(connection)
        for name, secret in clear.items():
            sealed = self._core.sealing.seal(secret, WEBHOOK)
            await sealing.seal_webhook(connection, name, secret, sealed)
        return len(clear)

    async def _seal_posted(self, connection: Connection) -> int:
        rows = await sealing.unsealed_posted(connection, self._tests, self._fields)
        for row in rows:
            await sealing.seal_posted(connection, self._sealed_posted(row))
        return len(rows)

    def _sealed_posted(self, row: PostedSecrets) -> PostedSecrets:
        """Return what was posted with its secrets sealed, in the place where each of them is.

        The secret members of pScheduler's tests are called like those of ours.
        """
        key, texts = self._core.sealing, list[str]()

        def sealed(value: Any) -> Any:
            if not isinstance(value, str):
                return value
            texts.append(value)
            return {"sealed": key.seal(value, POSTED)}

        document = None if row.document is None else json.loads(row.document)
        if document is not None and document["test"]["type"] in self._tests:
            test = document["test"]
            test["spec"] = self._specs.each_text(test["type"], test["spec"], sealed)
        whole, own = row.secret, row.key
        if whole is not None and not is_sealed(json.loads(whole)):
            whole = json.dumps({"sealed": key.seal(whole, POSTED)})
        if own is not None and not own.startswith(SEAL_PREFIX):
            own = key.seal(own, POSTED)
        words = row.words
        for text in texts:
            words = [word.replace(text, REDACTED) for word in words or ()] if text else words
        document_text = None if document is None else json.dumps(document, ensure_ascii=False)
        return PostedSecrets(row.task, document_text, whole, own, words)

    async def _seal_memberships(self, connection: Connection) -> int:
        clear = await sealing.unsealed_memberships(connection)
        for task_there, text in clear.items():
            sealed = self._core.sealing.seal(text, MEMBERSHIP)
            await sealing.seal_membership(connection, task_there, sealed)
        return len(clear)

    async def _seal_tasks(self, connection: Connection) -> int:
        own = self._core.identity
        rows = await sealing.unsealed_tasks(connection, own, self._tests, self._fields)
        for row in rows:
            spec = self._sealed_spec(row["test"], row["spec"], row["lead"])
            await sealing.seal_task(connection, row["id"], row["spec"], spec)
        return len(rows)

    async def _seal_runs(self, connection: Connection) -> int:
        rows = await sealing.unsealed_runs(connection, self._tests, self._fields)
        for row in rows:
            spec = self._sealed_spec(row["test"], row["spec"], row["lead"])
            await sealing.seal_run(connection, row["id"], spec)
        return len(rows)

    def _sealed_spec(self, test: str, spec: dict[str, Any], lead: str) -> dict[str, Any]:
        other = None if lead == self._core.identity else lead
        return self._specs.sealed_stored_spec(test, spec, other)
