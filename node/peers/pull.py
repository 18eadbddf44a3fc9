"""Pull mode: a node that no other can reach keeps one long poll open to each node it knows.

::

    this node                                             a lead
        ── POST /v1/participant/work  (shortfall) ──────────▶  waits until there is a question
        ◀── questions: proposals, holds, rulings, … ─────────
        each is passed to this node's own API, with its original signature
        ── POST /v1/participant/work  (answers) ────────────▶  passes them to the callers

Each question is answered with the next poll, and an answer is repeated until a poll that carried it
was answered. A question that takes longer is listed as being worked on. A node that does not
answer, or answers with no question and without waiting, is polled again after a growing pause; it
delays no other node.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from node.client.peers import Peer, Peers
from node.model import times
from node.model.backoff import jittered_pause
from node.model.errors import ParleyError, PeerAnswered, TooLarge
from node.model.shortfall import Shortfall
from node.model.wire.nodes import NodeCard
from node.model.wire.problems import problem_of
from node.model.wire.work import (
    QUESTIONS_MAX,
    AnsweredQuestion,
    AssignedQuestion,
    Reply,
    WorkRequest,
)
from node.peers.directory import Directory
from node.store.core import Core
from node.store.database import Notice

WAIT = 15 * times.SECOND
"""Maximum duration of a poll, and so the time until a dead connection is noticed."""

PAUSE_FIRST = 2 * times.SECOND
_MOMENT_S = 0.25
"""Time to wait for all questions of a poll; slower ones are answered with a later poll."""
_ANSWER_BYTES_MAX = 6_000_000

log = structlog.get_logger()


@dataclass
class PullSession:
    """The state between this node and one other: open questions, and unacknowledged answers."""

    working: dict[UUID, asyncio.Task[None]] = field(default_factory=dict)
    answers: dict[UUID, tuple[AnsweredQuestion, int]] = field(default_factory=dict)
    """The answers that were not acknowledged yet, each with its length in bytes."""

    def next_answers(self) -> tuple[AnsweredQuestion, ...]:
        """Return the oldest answers, as many as fit into one poll."""
        chosen: list[AnsweredQuestion] = []
        room = _ANSWER_BYTES_MAX
        for answered, length in self.answers.values():
            room -= length
            if chosen and (room < 0 or len(chosen) == QUESTIONS_MAX):
                break
            chosen.append(answered)
        return tuple(chosen)

    def answer(self, number: UUID, reply: Reply) -> None:
        """Add the answer to a question, or an error if the answer is too long to be sent."""
        answered = AnsweredQuestion(id=number, reply=reply)
        length = len(answered.model_dump_json().encode())
        if length > _ANSWER_BYTES_MAX:
            error = TooLarge(f"the answer has more than the {_ANSWER_BYTES_MAX} bytes that fit")
            self.answer(number, refusal(error))
        else:
            self.answers[number] = answered, length

    def drop_acknowledged(self, answers: tuple[AnsweredQuestion, ...]) -> None:
        """Remove answers that were acknowledged."""
        for answered in answers:
            self.answers.pop(answered.id, None)


def refusal(error: ParleyError) -> Reply:
    """Return the reply that raises this error at the other node."""
    return Reply(status=error.status, body=problem_of(error).model_dump_json())


class WorkPuller:
    """Keeps a long poll open to every node that has a URL."""

    def __init__(
        self,
        core: Core,
        directory: Directory,
        peers: Peers,
        rng: random.Random,
        card: Callable[[], NodeCard],
        free_time: Callable[[], Awaitable[Shortfall]],
    ) -> None:
        """``card()`` returns this node's card as it is now, ``free_time()`` how full it is."""
        self._free_time = free_time
        self._database = core.database
        self._clock = core.clock
        self._directory = directory
        self._peers = peers
        self._rng = rng
        self._card = card
        self._own_url = core.settings.local_url
        self._pause_max = core.settings.pull_pause_max
        self._changed = asyncio.Event()
        self._polling: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._faults: dict[str, str] = {}

    def on_notice(self, notice: Notice) -> None:
        """Look at the known nodes again when they have changed."""
        if notice.kind in {"node", "wake"}:
            self._changed.set()

    def fault(self, identity: str) -> str | None:
        """Return why the last poll of a node failed; None if it did not."""
        return self._faults.get(identity)

    async def run(self) -> None:
        """Poll every known node until cancelled."""
        try:
            while True:
                await self._follow()
                await self._changed.wait()
                self._changed.clear()
        finally:
            await self._end(list(self._polling))

    async def _follow(self) -> None:
        """Start polling new nodes, and stop polling removed ones."""
        try:
            await self._directory.refresh()
        except ParleyError as error:
            log.warning("nodes not read", error=error.detail)
        known = {
            (node.identity, node.url): node
            for node in self._directory.nodes_of_parley
            if not node.is_self and node.url is not None
        }
        await self._end([at for at in self._polling if at not in known])
        for at, node in known.items():
            if at not in self._polling:
                peer = self._peers.client_of(node.identity, node.name, node.url, node.attributes)
                self._polling[at] = asyncio.create_task(self._poll(peer), name=f"fetch {node.name}")

    async def _end(self, left: list[tuple[str, str]]) -> None:
        ending = [self._polling.pop(at) for at in left]
        for polling in ending:
            polling.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        for identity, _ in left:
            self._faults.pop(identity, None)

    async def _poll(self, peer: Peer) -> None:
        """Poll one node until cancelled."""
        failures, well, between = 0, True, PullSession()
        try:
            while True:
                # After a failure the next poll does not wait, so that recovery is noticed at once.
                fault = await self._try_fetch(peer, between, WAIT if well else 0)
                if fault is None:
                    failures = 0 if well else failures
                    well = True
                    self._faults.pop(peer.identity, None)
                    continue
                well = False
                if failures == 0:
                    log.info("no work fetched", node=peer.name, error=fault)
                failures += 1
                self._faults[peer.identity] = fault
                pause = jittered_pause(failures, PAUSE_FIRST, self._pause_max, self._rng)
                await self._clock.sleep(pause / times.SECOND)
        finally:
            for working in between.working.values():
                working.cancel()

    async def _try_fetch(self, peer: Peer, between: PullSession, wait: int) -> str | None:
        try:
            await self._fetch(peer, between, wait)
        except ParleyError as error:
            return error.detail
        except Exception as error:
            log.exception("no work fetched", node=peer.name)
            return f"cannot be asked for work: {error!r}"
        return None

    async def _fetch(self, peer: Peer, between: PullSession, wait: int) -> None:
        """Poll once: send the answers, and work on the questions that come.

        :raises PeerAnswered: the node answered without a question and without waiting.
        """
        answers = between.next_answers()
        if between.working or len(answers) < len(between.answers):
            wait = 0
        request = await self._request(answers, tuple(between.working), wait)
        asked_at = self._clock.monotonic()
        work = await self._peers.fetch(peer, request)
        between.drop_acknowledged(answers)
        if not work.questions and self._clock.monotonic() - asked_at < wait // 2:
            msg = f"{peer.name} returned no question and did not wait for one"
            raise PeerAnswered(msg)
        for assigned in work.questions:
            self._begin(assigned, between)
        if between.working:
            await asyncio.wait(between.working.values(), timeout=_MOMENT_S)

    async def _request(
        self, answers: tuple[AnsweredQuestion, ...], working: tuple[UUID, ...], wait: int
    ) -> WorkRequest:
        figures = await self._free_time()
        return WorkRequest(
            card=self._card(),
            now=self._clock.now(),
            shortfall=figures.missing,
            busy_until=figures.busy_until,
            wait=wait,
            answers=answers,
            working=working,
        )

    def _begin(self, assigned: AssignedQuestion, between: PullSession) -> None:
        """Work on a question, unless it is a repeat."""
        if assigned.id in between.working or assigned.id in between.answers:
            return

        async def work() -> None:
            try:
                reply = await self._peers.forward_question(self._own_url, assigned.question)
            except ParleyError as error:
                reply = refusal(error)
            finally:
                del between.working[assigned.id]
            between.answer(assigned.id, reply)

        between.working[assigned.id] = asyncio.create_task(work(), name=f"answer {assigned.id}")
