"""Asks by DNS whether targets object to being measured (:mod:`node.model.opt_outs`).

A program of ours that a target sends on to another host asks by the same class about that one.

The first look-up is made when a task is introduced, and waits for :data:`PATIENCE_S` at most. While
a run is prepared the answers are known, and are renewed beside it; otherwise it waits for at most
half of the time that is left, so that no run starts later. A name server that does not answer is no
objection: otherwise whoever can silence one could stop all measurements.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import dns.exception
import dns.rdatatype
import dns.resolver

from node.model import opt_outs
from node.model.reason import Reason
from node.model.reasons import opted_out
from node.model.targets import Network
from node.runtime.resolver import NameServers

PATIENCE_S = 1.0
"""Maximum time for which an introduction or a run waits for an answer."""
KNOWN_MAX = 8_192
"""Maximum number of names whose answers are remembered."""
AT_ONCE_MAX = 64
"""Maximum number of questions under way; a further one takes the place of the oldest for which
nobody waits any more, so that slow zones do not keep others from being asked, or is not put."""


@dataclass(frozen=True)
class _Said:
    """The word of a record, and until when it counts by the loop's clock (s)."""

    no: bool | None
    until: float


@dataclass(frozen=True)
class _Question:
    """A question that is under way since then, by the loop's clock (s)."""

    task: asyncio.Task[None]
    since: float


class OptOuts:
    """The objections of targets, as far as they are known and by asking."""

    def __init__(
        self,
        allowed: Callable[[], Iterable[Network]],
        servers: NameServers | None = None,
    ) -> None:
        """``allowed()`` returns the networks that the owner of this host has measured anyway.

        Without ``servers`` those of the host are asked.
        """
        self.allowed = allowed
        self.servers = servers or NameServers()
        self._known: OrderedDict[str, _Said] = OrderedDict()
        self._pending: dict[str, _Question] = {}

    async def refusal(self, hosts: Iterable[str], patience_s: float = PATIENCE_S) -> Reason | None:
        """Return why these hosts are not measured; None if no objection is known in time.

        What was known before counts meanwhile, if it has become too old: only what was never
        answered is awaited.
        """
        asked = list(self._hosts_to_ask(hosts))
        pending = {task for host in asked for task in self._ask(host)}
        if pending:
            await asyncio.wait(pending, timeout=min(max(patience_s, 0), PATIENCE_S))
        return next((reason for host in asked if (reason := self._refusal(host))), None)

    def _hosts_to_ask(self, hosts: Iterable[str]) -> Iterable[str]:
        allowed = tuple(self.allowed())
        return (host for host in dict.fromkeys(hosts) if not opt_outs.is_exempt(host, allowed))

    def _refusal(self, host: str) -> Reason | None:
        names = opt_outs.record_names(host)
        said = {name: self._known[name].no for name in names if name in self._known}
        record = opt_outs.objection(names, said)
        return None if record is None else opted_out(host, record)

    def _ask(self, host: str) -> list[asyncio.Task[None]]:
        """Put the questions whose answers are not known or too old; return those never answered."""
        now, asking = asyncio.get_running_loop().time(), []
        for name in opt_outs.record_names(host):
            known = self._known.get(name)
            if known is not None and now < known.until:
                continue
            if name not in self._pending and self._has_place(now):
                task = asyncio.create_task(self._learn(name), name=f"look up {name}")
                self._pending[name] = _Question(task, now)
            if known is None and name in self._pending:
                asking.append(self._pending[name].task)
        return asking

    def _has_place(self, now: float) -> bool:
        """Return whether one more question may be put, and make a place for it if that can be."""
        if len(self._pending) < AT_ONCE_MAX:
            return True
        name, oldest = next(iter(self._pending.items()))
        if now - oldest.since < PATIENCE_S:
            return False
        del self._pending[name]
        oldest.task.cancel()
        return True

    async def _learn(self, name: str) -> None:
        try:
            no, seconds = await self._query(name)
        finally:
            question = self._pending.get(name)
            if question is not None and question.task is asyncio.current_task():
                del self._pending[name]
        known = self._known.pop(name, None)
        if seconds is None:  # nobody answered: what was known before stays
            no, seconds = None if known is None else known.no, opt_outs.UNANSWERED_S
        self._known[name] = _Said(no, asyncio.get_running_loop().time() + seconds)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    async def _query(self, name: str) -> tuple[bool | None, float | None]:
        """Return what a record says, and for how long it does (s), None if nobody answered."""
        if (servers := self.servers.current()) is None:
            return None, None
        with contextlib.suppress(dns.exception.DNSException, OSError):
            try:
                answer = await servers.resolve(
                    f"{name}.",
                    dns.rdatatype.TXT,
                    raise_on_no_answer=False,
                    search=False,
                    lifetime=5 * PATIENCE_S,
                )
            except dns.resolver.NXDOMAIN as none:
                found = next(iter(none.kwargs["responses"].values())).resolve_chaining()
                return None, opt_outs.cache_seconds(found.minimum_ttl, present=False)
            records = answer.rrset or ()
            texts = [b"".join(each.strings).decode("utf-8", "replace") for each in records]
            no, ttl = opt_outs.stated_objection(texts), answer.chaining_result.minimum_ttl
            return no, opt_outs.cache_seconds(ttl, present=no is not None)
        return None, None
