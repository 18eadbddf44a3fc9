"""Reasons as values: a code, figures and names, and the sentence that these make. Pure.

A reason says why a run, a task, a slot, a seat, or a plan is not as it was wanted. Each sentence is
written in one place, by a function of a catalogue (``node/model/reasons.py``, ``lead/reasons.py``),
for example::

    @reason
    def no_common_time(names: Sequence[str], duration: int) -> str:
        return f"{' and '.join(names)} have no {format_duration(duration)} free at the same time"

    why = no_common_time(["a", "b"], 10 * SECOND)
    assert why.code == "no-common-time"
    assert why.figures == {"names": ["a", "b"], "duration": 10 * SECOND}

The code is the name of the function, and stays the same from release to release; the sentence may
be worded anew. A reason is a text, so it is stored, sent, and shown as its sentence, and may be a
figure of another one. A text that was composed elsewhere has no code, and where a reason is wanted
the type checker refuses it. ``tests/golden/reasons.json`` has the sentence of each code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, Self

P = ParamSpec("P")


class Reason(str):
    """A sentence that says why, with its code, and its figures and names."""

    __slots__ = ("code", "figures")

    code: str
    figures: Mapping[str, Any]

    def __new__(cls, sentence: str, code: str, figures: Mapping[str, Any]) -> Self:
        """Keep all three as they are."""
        self = super().__new__(cls, sentence)
        self.code, self.figures = code, figures
        return self

    def __getnewargs__(self) -> tuple[str, str, Mapping[str, Any]]:  # type: ignore[override]
        """Return what a copy is made of."""
        return str(self), self.code, self.figures

    def at(self, name: str) -> Reason:
        """Return the reason as that of a participant, a campaign, or a pool of this name."""
        return Reason(f"{name}: {self}", self.code, {**self.figures, "at": name})

    def of(self, name: str) -> Reason:
        """Return the reason as :meth:`at` was asked for it, if it was for this name."""
        if self.figures.get("at") != name:
            return self
        rest = {key: it for key, it in self.figures.items() if key != "at"}
        return Reason(self.removeprefix(f"{name}: "), self.code, rest)

    def beside(self, *others: Reason) -> Reason:
        """Return the reason with further ones, of which it is the decisive one."""
        if not others:
            return self
        figures = {**self.figures, "beside": others}
        return Reason("; ".join([self, *others]), self.code, figures)


def several(reasons: Sequence[Reason]) -> Reason:
    """Return reasons as one, of which the first is the decisive one; there must be one."""
    return reasons[0].beside(*reasons[1:])


def first_few(words: Sequence[str], between: str = ", ", shown: int = 5) -> str:
    """Return the first of some words, and how many more there are."""
    omitted = len(words) - shown
    return between.join(words[:shown]) + (f" and {omitted} more" if omitted > 0 else "")


class ReasonKind(Generic[P]):
    """A kind of reason: makes reasons of its code from figures and names."""

    def __init__(self, write: Callable[P, str]) -> None:
        """``write`` returns the sentence; its name is the code, and its parameters the figures."""
        self.code = write.__name__.replace("_", "-")
        self._write = write
        self._names = tuple(inspect.signature(write).parameters)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Reason:
        """Return the reason with these figures."""
        figures = dict(zip(self._names, args, strict=False)) | kwargs
        return Reason(self._write(*args, **kwargs), self.code, figures)


reason = ReasonKind
"""Marks a function that writes the sentence of a reason."""
