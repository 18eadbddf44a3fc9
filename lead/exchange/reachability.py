"""Reachability of the participants: a circuit breaker and a bulkhead, shared by all workers.

Both protect tasks from participants that they do not need. The circuit breaker: a participant that
does not answer is asked a single question from time to time (``planning/unreachable.py``), and the
tasks that need it wait without asking. The bulkhead: only a share of the workers may wait for a
participant that answers slowly, and for each worker blocked longer than a second an extra one is
started.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

from lead.model.participants import ParticipantClient
from lead.planning.unreachable import UnreachablePeriod, after_unanswered_question
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
    Release,
)
from node.runtime.clock import Clock

WORKER_SHARE_DIVISOR = 4
"""The divisor of the share: a quarter of the workers may wait for a participant that is slow."""
PROMPT_ANSWER_TIME = times.SECOND
"""Maximum duration of a prompt answer."""

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class _Question:
    """A question to a participant that is under way, and the planning that it belongs to."""

    identity: str
    guard: ReachabilityGuard
    asked_at: int
    asked: int
    """The same in monotonic time: how long it has been open does not depend on the date."""


class ReachabilityTracker:
    """The state of all participants: which ones answer, how promptly, and up to what horizon."""

    def __init__(self, clock: Clock, rng: random.Random, workers: int) -> None:
        """Assume that every participant answers; ``workers`` is the size of the pool."""
        self._clock = clock
        self._rng = rng
        self._workers = workers
        self._share = max(1, workers // WORKER_SHARE_DIVISOR)
        self._unreachable: dict[str, UnreachablePeriod] = {}
        self._horizons: dict[str, int] = {}
        self._asking: Counter[str] = Counter()
        self._questions: dict[_Question, None] = {}  # the oldest comes first
        self._prompt: set[str] = set()
        self._crowded: set[str] = set()
        self._answered: set[str] = set()
        self._put_off: dict[str, int] = {}

    def ask_all(self) -> None:
        """Ask all unreachable participants now: the clock that chose when to was set back."""
        now = self._clock.now()
        for identity, period in self._unreachable.items():
            self._unreachable[identity] = replace(
                period,
                since=min(period.since, now),
                failed_at=min(period.failed_at, now),
                ask_at=now,
            )
            self._put_off[identity] = now
        self._horizons.clear()

    def admit(self, others: Iterable[str]) -> ReachabilityGuard:
        """Reserve a place at each of these participants, to plan one task.

        All places or none are reserved; the guard says which participant prevents it.
        """
        wanted = list(dict.fromkeys(others))
        now = self._clock.now()
        unreachable = [
            self._unreachable[other]
            for other in wanted
            if other in self._unreachable and not self._free_places_at(other, now)
        ]
        if unreachable:
            return ReachabilityGuard(
                self, (), max(unreachable, key=lambda period: period.ask_at), None
            )
        full = next((other for other in wanted if not self._free_places_at(other, now)), None)
        if full is not None:
            self._crowded.add(full)
            return ReachabilityGuard(self, (), None, full)
        self._asking.update(wanted)
        return ReachabilityGuard(self, wanted, None, None)

    def unreachable_among(
        self, participants: Iterable[str]
    ) -> tuple[str, UnreachablePeriod] | None:
        """Return the unreachable participant that is asked again last, or None.

        A participant that is being asked right now comes after those that may be asked: a task
        that waited for one of these would be planned again at once, without success.
        """
        now = self._clock.now()
        unreachable = [(p, self._unreachable[p]) for p in participants if p in self._unreachable]

        def last(entry: tuple[str, UnreachablePeriod]) -> tuple[bool, int]:
            return not self._free_places_at(entry[0], now), entry[1].ask_at

        return max(unreachable, key=last, default=None)

    def horizon(self, participants: Iterable[str], own: int) -> int:
        """Return the shortest known horizon of these participants and ``own`` (µs)."""
        return min([own, *(self._horizons[p] for p in participants if p in self._horizons)])

    def restricted_participants(self) -> list[str]:
        """Return the participants whose tasks are claimed by :meth:`free_places` only."""
        return sorted(self._crowded | self._unreachable.keys())

    def free_places(self) -> list[tuple[str, int]]:
        """Return how many tasks of each restricted participant may be planned now, if any."""
        now = self._clock.now()
        places = [
            (identity, self._free_places_at(identity, now))
            for identity in self.restricted_participants()
        ]
        return [(identity, count) for identity, count in places if count]

    def note_claimed(self, identity: str, places: int, claimed: int) -> None:
        """Note how many tasks were claimed for an opening; if fewer, none waits for room now."""
        if claimed < places:
            self._crowded.discard(identity)

    def note_turned_away(self, identity: str) -> None:
        """Note that a task waits for room; if the participant is unreachable now, tell the task."""
        if identity in self._unreachable:
            self._put_off[identity] = self._unreachable[identity].ask_at

    def note_waiting_task(self, identity: str) -> None:
        """Note that a task waits for an answer; if one has come meanwhile, tell the task."""
        if identity not in self._unreachable:
            self._answered.add(identity)

    def blocked(self) -> list[str]:
        """Return the participants in :meth:`restricted_participants` that must not be asked now."""
        now = self._clock.now()
        return [
            identity
            for identity in self.restricted_participants()
            if not self._free_places_at(identity, now)
        ]

    def next_probe_at(self) -> int | None:
        """Return the next instant at which an unreachable participant may be asked again."""
        now = self._clock.now()
        return min((s.ask_at for s in self._unreachable.values() if s.ask_at > now), default=None)

    def unanswered_since(self) -> dict[str, int]:
        """Return by unreachable participant that is not asked yet when its last question failed."""
        now = self._clock.now()
        return {it: each.failed_at for it, each in self._unreachable.items() if each.ask_at > now}

    def probe_now(self, identities: Collection[str]) -> None:
        """Ask these nodes now: somebody on this host has seen that they answer."""
        for identity in self._unreachable.keys() & identities:
            period = self._unreachable[identity]
            self._unreachable[identity] = replace(period, ask_at=self._clock.now())
            self._put_off[identity] = self._clock.now()

    def probe_by_name(self, name: str) -> None:
        """Ask the node of this name now."""
        self.probe_now([it for it, period in self._unreachable.items() if period.name == name])

    def take_changes(self) -> tuple[list[str], dict[str, int]]:
        """Return, since the last call, who answers again, and when others are asked again."""
        answered, put_off = sorted(self._answered), self._put_off
        self._answered, self._put_off = set(), {}
        return answered, put_off

    def _free_places_at(self, identity: str, now: int) -> int:
        """Return how many more tasks may ask a participant."""
        period = self._unreachable.get(identity)
        if period is not None:
            return int(period.ask_at <= now and not self._asking[identity])
        late = any(question.identity == identity for question in self._late_questions())
        prompt = identity in self._prompt and not late
        return max(0, (self._workers if prompt else self._share) - self._asking[identity])

    def _late_questions(self) -> Iterator[_Question]:
        latest = self._clock.monotonic() - PROMPT_ANSWER_TIME
        return takewhile(lambda question: question.asked <= latest, self._questions)

    def slow_task_count(self) -> int:
        """Return how many tasks wait for an answer that is not prompt."""
        return len({question.guard for question in self._late_questions()})

    def next_slow_task_at(self) -> int | None:
        """Return when the next task will be one of them, unless it gets its answer."""
        latest = self._clock.monotonic() - PROMPT_ANSWER_TIME
        young = (question.asked for question in self._questions if question.asked > latest)
        asked = next(young, None)
        return None if asked is None else self._clock.now() + (asked - latest)

    def release_place(self, identity: str) -> None:
        """Give a place at a participant back."""
        self._asking[identity] -= 1

    def take_place(self, identity: str) -> None:
        """Take a place at a participant."""
        self._asking[identity] += 1

    def begin_question(self, identity: str, guard: ReachabilityGuard) -> _Question:
        """Note that a question is sent to a participant."""
        question = _Question(identity, guard, self._clock.now(), self._clock.monotonic())
        self._questions[question] = None
        return question

    def end_question(self, question: _Question) -> None:
        """Note that a question has ended, after its answer or failure was recorded."""
        del self._questions[question]
        identity = question.identity
        if (
            identity not in self._unreachable
            and self._clock.monotonic() < question.asked + PROMPT_ANSWER_TIME
        ):
            self._prompt.add(identity)
        else:
            self._prompt.discard(identity)

    def record_answer(self, identity: str) -> None:
        """Note that a participant has answered."""
        if self._unreachable.pop(identity, None) is not None:
            self._answered.add(identity)
            self._put_off.pop(identity, None)

    def record_no_answer(self, participant: ParticipantClient, cause: str, asked_at: int) -> None:
        """Note that a question sent at ``asked_at`` got no sensible answer."""
        before, now = self._unreachable.get(participant.identity), self._clock.now()
        # The clock may have been set back since it was asked.
        period = after_unanswered_question(
            before, participant.name, cause, min(asked_at, now), now, self._rng
        )
        self._unreachable[participant.identity] = period
        if period is not before:
            self._put_off[participant.identity] = period.ask_at
            self._answered.discard(participant.identity)
            self._crowded.discard(participant.identity)

    def note_booking_horizon(self, identity: str, horizon: int) -> None:
        """Note how far ahead a participant books (µs), by its own clock, which may be wrong.

        It is asked a minute before a run at the latest, even if it says that it never books.
        """
        self._horizons[identity] = max(horizon, times.MINUTE)


class ReachabilityGuard:
    """The places at the participants of one task, while it is planned.

    ``unreachable`` is set if a participant must not be asked yet, ``full`` if enough other tasks
    wait for a participant. In both cases no place was reserved.
    """

    def __init__(
        self,
        tracker: ReachabilityTracker,
        others: Sequence[str],
        unreachable: UnreachablePeriod | None,
        full: str | None,
    ) -> None:
        """Use :meth:`ReachabilityTracker.admit`, which has reserved places at ``others``."""
        self._tracker = tracker
        self._counted = set(others)
        self.unreachable = unreachable
        self.full = full

    def __enter__(self) -> Self:
        """Return the guard; the places were reserved before."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give back the places at participants that were not asked."""
        for identity in self._counted:
            self._tracker.release_place(identity)
        self._counted.clear()

    async def ask(self, participant: ParticipantClient, question: Awaitable[T]) -> T:
        """Await the answer to a question, record whether it came, and give the place back."""
        identity = participant.identity
        if identity in self._counted:
            self._counted.discard(identity)
        else:
            self._tracker.take_place(identity)
        pending = self._tracker.begin_question(identity, self)
        try:
            answered = await question
        except RequestError:
            self._tracker.record_answer(identity)
            raise
        except ParleyError as error:
            self._tracker.record_no_answer(participant, error.detail, pending.asked_at)
            raise
        else:
            self._tracker.record_answer(identity)
            return answered
        finally:
            self._tracker.end_question(pending)
            self._tracker.release_place(identity)

    def note_booking_horizon(self, identity: str, horizon: int) -> None:
        """Note how far ahead a participant books (µs)."""
        self._tracker.note_booking_horizon(identity, horizon)

    def recorded(self, participant: ParticipantClient) -> ParticipantClient:
        """Return the participant with its answers recorded."""
        return _RecordedParticipant(participant, self)


class _RecordedParticipant:
    """A participant whose answers are recorded."""

    def __init__(self, participant: ParticipantClient, guard: ReachabilityGuard) -> None:
        self.identity = participant.identity
        self.name = participant.name
        self.binding = participant.binding
        self._participant = participant
        self._guard = guard

    async def introduce(self, introduction: Introduction) -> IntroductionAnswer:
        """Make a task known."""
        return await self._guard.ask(self._participant, self._participant.introduce(introduction))

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Return the free ranges in the windows, and note the horizon of the node."""
        answered = await self._guard.ask(self._participant, self._participant.propose(request))
        self._guard.note_booking_horizon(self.identity, answered.horizon - answered.now)
        return answered

    async def hold(self, exchange: UUID, request: HoldRequest) -> HoldAnswer:
        """Book these runs until the decision."""
        return await self._guard.ask(self._participant, self._participant.hold(exchange, request))

    async def commit(self, exchange: UUID, request: CommitRequest) -> CommitAnswer:
        """Keep these runs and drop the others."""
        return await self._guard.ask(self._participant, self._participant.commit(exchange, request))

    async def release(self, exchange: UUID, release: Release) -> None:
        """Drop the hold and free its time."""
        await self._guard.ask(self._participant, self._participant.release(exchange, release))
