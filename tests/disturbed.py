"""What was asked of a database, altered: left out, taken back, asked at another time, of others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from inspect import signature
from random import Random
from typing import Any

from lead.simulation.memory.twins import twin_of
from node.model import times
from tests.recorded import Transaction

KEPT = {"numbers", "starts", "ends", "command"}
"""Parameters that must fit each other, since a span must not end before it starts; or no others."""


class Disturber:
    """Alters the transactions of a life, by values that occur elsewhere in it."""

    def __init__(self, life: Sequence[Transaction], rng: Random) -> None:
        """Collect the values."""
        self._life = life
        self._rng = rng
        self._instants: list[int] = []
        self._values: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for transaction in life:
            for query, args in transaction.statements:
                for name, arg in zip(_parameters(query), args, strict=True):
                    self._collect(query, name, arg)

    def _collect(self, query: str, name: str, arg: Any) -> None:
        for value in arg if isinstance(arg, list) else [arg]:
            self._values[query, name].append(value)
            if _is_instant(value):
                self._instants.append(value)

    def disturbed(self) -> list[Transaction]:
        """Much the same life."""
        played: list[Transaction] = []
        for transaction in self._life:
            chance = self._rng.random()
            if chance < 0.1:
                continue
            if chance < 0.4:
                played.append(self._altered(self._rng.choice(self._life)))
            played.append(transaction if chance < 0.75 else self._altered(transaction))
        return played

    def _altered(self, transaction: Transaction) -> Transaction:
        left = [
            (query, self._arguments(query, args))
            for query, args in transaction.statements
            if self._rng.random() < 0.85
        ]
        return Transaction(left, committed=self._rng.random() < 0.8)

    def _arguments(self, query: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        named = zip(_parameters(query), args, strict=True)
        return tuple(
            arg if name in KEPT else self._argument(query, name, arg) for name, arg in named
        )

    def _argument(self, query: str, name: str, arg: Any) -> Any:
        if self._rng.random() < 0.6 or isinstance(arg, dict):
            return arg
        if not isinstance(arg, list):
            return self._another(query, name, arg)
        altered: list[Any] = []
        for value in arg:
            another = value if self._rng.random() < 0.5 else self._another(query, name, value)
            # Twice the same row in one statement is not defined.
            altered.append(value if another in arg or another in altered else another)
        return altered

    def _another(self, query: str, name: str, value: Any) -> Any:
        if _is_instant(value):
            minutes = self._rng.randint(-30, 30) * times.MINUTE
            return self._rng.choice((value + minutes, *self._rng.sample(self._instants, 2)))
        if type(value) is int and value < 100:
            return max(0, value + self._rng.choice((-1, 1)))
        return self._rng.choice(self._values[query, name])


def _is_instant(value: Any) -> bool:
    return type(value) is int and value > times.EARLIEST


def _parameters(query: str) -> list[str]:
    return list(signature(twin_of(query).twin).parameters)[1:]
