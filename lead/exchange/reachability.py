"""Which participants answer: one object that all workers of a process share.

It keeps two things from hurting tasks that have nothing to do with them. A participant that does
not answer is asked by one question now and then (``planning/silence.py``); the tasks that need it
wait without asking. Of one that answers slowly only a share of the workers waits at a time, and a
worker that waits long is made up for by another one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

from lead.participants import ParticipantClient
from lead.planning.unreachable import UnreachablePeriod, after_unanswered_question
from node.clock import Clock
from node.model import times
from node.model.errors import ParleyError, RequestError
from node.model.wire.participants import (
    CommitAnswer,
    CommitRequest,
    HoldAnswer,
    HoldRequest,
    Introduction,
    IntroductionAnswer,
    Proposal,
    ProposalRequest,
)

WORKER_SHARE_DIVISOR = 4
"""A quarter of the workers may wait for the same participant, unless it answers promptly."""
PROMPT_ANSWER_TIME = times.SECOND
"""An answer that takes longer is not prompt."""

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class _Question:
    """A question to a participant that is under way, and the visit it belongs to."""

    identity: str
    visit: ReachabilityGuard
    asked_at: int


class ReachabilityTracker:
    """What is known of the participants' answers."""

    def __init__(self, clock: Clock, rng: random.Random, workers: int) -> None:
        """Everybody answers until found silent."""
        self._clock = clock
        self._rng = rng
        self._workers = workers
        self._share = max(1, workers // WORKER_SHARE_DIVISOR)
        self._silences: dict[str, UnreachablePeriod] = {}
        self._horizons: dict[str, int] = {}
        self._asking: Counter[str] = Counter()
        self._questions: dict[_Question, None] = {}  # the oldest comes first
        self._prompt: set[str] = set()
        self._crowded: set[str] = set()
        self._answered: set[str] = set()
        self._put_off: dict[str, int] = {}

    def visit(self, others: Iterable[str]) -> ReachabilityGuard:
        """Ask for the way to these participants, to plan one task."""
        wanted = list(dict.fromkeys(others))
        now = self._clock.now()
        silent = [
            self._silences[other]
            for other in wanted
            if other in self._silences and not self._places(other, now)
        ]
        if silent:
            return ReachabilityGuard(
                self, (), max(silent, key=lambda silence: silence.ask_at), None
            )
        full = next((other for other in wanted if not self._places(other, now)), None)
        if full is not None:
            self._crowded.add(full)
            return ReachabilityGuard(self, (), None, full)
        self._asking.update(wanted)
        return ReachabilityGuard(self, wanted, None, None)

    def unreachable_among(
        self, participants: Iterable[str]
    ) -> tuple[str, UnreachablePeriod] | None:
        """Of these, the one that does not answer and is asked again last.

        One that is being asked right now comes after those that may be asked: who waited for one
        of these would be planned again at once, in vain.
        """
        now = self._clock.now()
        silent = [(p, self._silences[p]) for p in participants if p in self._silences]

        def last(found: tuple[str, UnreachablePeriod]) -> tuple[bool, int]:
            return not self._places(found[0], now), found[1].ask_at

        return max(silent, key=last, default=None)

    def horizon(self, participants: Iterable[str], own: int) -> int:
        """How far ahead all of these book, as far as they have said."""
        return min([own, *(self._horizons[p] for p in participants if p in self._horizons)])

    def shut(self) -> list[str]:
        """Participants whose tasks are taken one by one: :meth:`openings`."""
        return sorted(self._crowded | self._silences.keys())

    def openings(self) -> list[tuple[str, int]]:
        """For which of those how many tasks may be planned now."""
        now = self._clock.now()
        places = [(identity, self._places(identity, now)) for identity in self.shut()]
        return [(identity, count) for identity, count in places if count]

    def taken(self, identity: str, places: int, found: int) -> None:
        """So many tasks were found for an opening; if fewer, nobody waits for room any more."""
        if found < places:
            self._crowded.discard(identity)

    def task_turned_away(self, identity: str) -> None:
        """A task came to wait for room; if there is silence by now it must learn of it."""
        if identity in self._silences:
            self._put_off[identity] = self._silences[identity].ask_at

    def task_waits(self, identity: str) -> None:
        """A task has come to wait for its answer; if it gave one by now the task must learn it."""
        if identity not in self._silences:
            self._answered.add(identity)

    def closed(self) -> list[str]:
        """Of those, the ones that nobody may ask now."""
        now = self._clock.now()
        return [identity for identity in self.shut() if not self._places(identity, now)]

    def next_probe_at(self) -> int | None:
        """When the next silent participant may be asked again; who may be now is not waited for."""
        now = self._clock.now()
        return min((s.ask_at for s in self._silences.values() if s.ask_at > now), default=None)

    def reached(self, name: str) -> None:
        """Somebody else has seen that this node answers: ask it now."""
        for identity, silence in self._silences.items():
            if silence.name == name:
                self._silences[identity] = replace(silence, ask_at=self._clock.now())
                self._put_off[identity] = self._clock.now()

    def news(self) -> tuple[list[str], dict[str, int]]:
        """Since the last call: who answers again, and when silent ones are asked again."""
        answered, put_off = sorted(self._answered), self._put_off
        self._answered, self._put_off = set(), {}
        return answered, put_off

    def _places(self, identity: str, now: int) -> int:
        """How many more may ask it."""
        silence = self._silences.get(identity)
        if silence is not None:
            return int(silence.ask_at <= now and not self._asking[identity])
        late = any(question.identity == identity for question in self._late(now))
        prompt = identity in self._prompt and not late
        return max(0, (self._workers if prompt else self._share) - self._asking[identity])

    def _late(self, now: int) -> Iterator[_Question]:
        """The questions that have not been answered promptly."""
        return takewhile(
            lambda question: question.asked_at <= now - PROMPT_ANSWER_TIME, self._questions
        )

    def slow_visit_count(self) -> int:
        """How many visits wait for an answer that is not prompt."""
        return len({question.visit for question in self._late(self._clock.now())})

    def next_slow_visit_at(self) -> int | None:
        """When the next visit will be one of them, unless it gets its answer."""
        latest = self._clock.now() - PROMPT_ANSWER_TIME
        young = (q.asked_at for q in self._questions if q.asked_at > latest)
        asked_at = next(young, None)
        return None if asked_at is None else asked_at + PROMPT_ANSWER_TIME

    def left(self, identity: str) -> None:
        """A place to ask it is free again."""
        self._asking[identity] -= 1

    def entered(self, identity: str) -> None:
        """A place to ask it is taken."""
        self._asking[identity] += 1

    def asked(self, identity: str, visit: ReachabilityGuard) -> _Question:
        """A question goes out to it."""
        question = _Question(identity, visit, self._clock.now())
        self._questions[question] = None
        return question

    def over(self, question: _Question) -> None:
        """A question has come to its end; whether it was answered is known already."""
        del self._questions[question]
        identity = question.identity
        if (
            identity not in self._silences
            and self._clock.now() < question.asked_at + PROMPT_ANSWER_TIME
        ):
            self._prompt.add(identity)
        else:
            self._prompt.discard(identity)

    def heard(self, identity: str) -> None:
        """It has answered."""
        if self._silences.pop(identity, None) is not None:
            self._answered.add(identity)
            self._put_off.pop(identity, None)

    def record_no_answer(self, participant: ParticipantClient, cause: str, asked_at: int) -> None:
        """A question of ``asked_at`` got no sensible answer."""
        before = self._silences.get(participant.identity)
        silence = after_unanswered_question(
            before, participant.name, cause, asked_at, self._clock.now(), self._rng
        )
        self._silences[participant.identity] = silence
        if silence is not before:
            self._put_off[participant.identity] = silence.ask_at
            self._answered.discard(participant.identity)
            self._crowded.discard(participant.identity)

    def note_booking_horizon(self, identity: str, latest: int) -> None:
        """Nothing may end later there."""
        self._horizons[identity] = latest - self._clock.now()


class ReachabilityGuard:
    """The way to the participants of one task, while it is planned.

    ``silence`` is set where one of them does not answer and is not to be asked yet, ``full`` where
    enough others wait for one: then nobody is asked.
    """

    def __init__(
        self,
        reach: ReachabilityTracker,
        others: Sequence[str],
        silence: UnreachablePeriod | None,
        full: str | None,
    ) -> None:
        """Made by :meth:`ReachabilityTracker.visit`, which has counted ``others``."""
        self._reach = reach
        self._counted = set(others)
        self.silence = silence
        self.full = full

    def __enter__(self) -> Self:
        """The places are taken already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the places of those that were not asked after all."""
        for identity in self._counted:
            self._reach.left(identity)
        self._counted.clear()

    async def ask(self, participant: ParticipantClient, question: Awaitable[T]) -> T:
        """Ask it, and remember whether it answered; the place is free once it has."""
        identity = participant.identity
        if identity in self._counted:
            self._counted.discard(identity)
        else:
            self._reach.entered(identity)
        asked = self._reach.asked(identity, self)
        try:
            answered = await question
        except RequestError:
            self._reach.heard(identity)
            raise
        except ParleyError as error:
            self._reach.record_no_answer(participant, error.detail, asked.asked_at)
            raise
        else:
            self._reach.heard(identity)
            return answered
        finally:
            self._reach.over(asked)
            self._reach.left(identity)

    def learn(self, identity: str, latest: int) -> None:
        """It books until this instant."""
        self._reach.note_booking_horizon(identity, latest)

    def through(self, participant: ParticipantClient) -> ParticipantClient:
        """The participant, its answers watched."""
        return _Watched(participant, self)


class _Watched:
    """A participant whose answers are watched."""

    def __init__(self, participant: ParticipantClient, visit: ReachabilityGuard) -> None:
        self.identity = participant.identity
        self.name = participant.name
        self._participant = participant
        self._visit = visit

    async def introduce(self, introduction: Introduction) -> IntroductionAnswer:
        """Make a task known."""
        return await self._visit.ask(self._participant, self._participant.introduce(introduction))

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Free ranges in the windows; how far it books ahead is remembered."""
        answered = await self._visit.ask(self._participant, self._participant.propose(request))
        self._visit.learn(self.identity, answered.horizon)
        return answered

    async def hold(self, exchange: UUID, request: HoldRequest) -> HoldAnswer:
        """Book for now."""
        return await self._visit.ask(self._participant, self._participant.hold(exchange, request))

    async def commit(self, exchange: UUID, request: CommitRequest) -> CommitAnswer:
        """Keep these runs."""
        return await self._visit.ask(self._participant, self._participant.commit(exchange, request))

    async def release(self, exchange: UUID, task: UUID) -> None:
        """Drop the hold."""
        await self._visit.ask(self._participant, self._participant.release(exchange, task))
