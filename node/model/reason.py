"""Reasons as values: a code, figures and names, and the sentence that these make. Pure.

A reason says why a run, a task, a slot, a seat, or a plan is not as it was wanted. Each sentence is
written in one place, in a catalogue (``reasons.py`` of ``node/model`` and of ``lead/model``), as a
kind of reason with the types of its figures::

    no_common_time = ReasonKind[[Sequence[str], int]](
        "no-common-time", "{names:and} have no {duration:duration} free at the same time"
    )
    why = no_common_time(["a", "b"], 10 * SECOND)
    assert why.code == "no-common-time"
    assert why.figures == {"names": ["a", "b"], "duration": 10 * SECOND}

Where a sentence depends on its figures, a function writes it (:func:`reason`); its name is the
code. The code stays the same from release to release; the sentence may be worded anew. A reason is
a text, so it is stored, sent, and shown as its sentence, and may be a figure of another one. A text
that was composed elsewhere has no code, and where a reason is wanted the type checker refuses it.
``tests/golden/reasons.json`` has the sentence of each code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, Self, SupportsFloat

from node.model.byte_quotas import bytes_text
from node.model.times import SECOND, duration_text, format_instant, to_the_second

P = ParamSpec("P")
_FIELD = re.compile(r"{(\w+)")
_FIELDS = re.compile(r"{\w+(?::(\w+))?}")
_WRITTEN = {"instant": r"[0-9TZ:.-]+", "moment": r"[0-9TZ:.-]+", "seconds": r"-?[0-9.]+ s"}
"""Patterns of figures in these forms, so that a sentence that goes on behind one is another."""


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


class ReasonKind(Generic[P]):
    """A kind of reason: makes reasons of its code from figures and names."""

    def __init__(self, code: str, sentence: str | Callable[P, str]) -> None:
        """``sentence`` is a format string (:func:`in_words`), or returns the sentence.

        Its fields, in their order, or its parameters are the figures.
        """
        self.code = code
        if isinstance(sentence, str):
            self._names = tuple(dict.fromkeys(_FIELD.findall(sentence)))
        else:
            self._names = tuple(inspect.signature(sentence).parameters)
        self._sentence = sentence
        self._pattern: re.Pattern[str] | None = None

    def wrote(self, text: str) -> bool:
        """Return whether a text is a sentence of this kind, as another node may have sent it.

        Only for kinds whose sentence is a format string.
        """
        if self._pattern is None:
            if not isinstance(self._sentence, str):
                raise TypeError(self.code)
            forms = _FIELDS.split(self._sentence)
            plain = map(re.escape, forms[::2])
            figures = (_WRITTEN.get(form or "", ".+") for form in (*forms[1::2], None))
            parts = zip(plain, figures, strict=True)
            self._pattern = re.compile("".join(it for part in parts for it in part)[: -len(".+")])
        return self._pattern.fullmatch(text) is not None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Reason:
        """Return the reason with these figures."""
        figures = dict(zip(self._names, args, strict=False)) | kwargs
        if isinstance(self._sentence, str):
            return Reason(in_words(self._sentence, figures), self.code, figures)
        return Reason(self._sentence(*args, **kwargs), self.code, figures)


def reason(write: Callable[P, str]) -> ReasonKind[P]:
    """Return the kind of reason whose sentence a function writes, by whose name it has its code."""
    return ReasonKind(write.__name__.replace("_", "-"), write)


def in_words(sentence: str, figures: Mapping[str, Any]) -> str:
    """Return a sentence with its figures, which may have these forms.

    ``{length:duration}`` (µs), ``{late:seconds}`` (µs), ``{since:instant}`` (µs, to the second),
    ``{part:percent}``, ``{moved:bytes}`` with a decimal unit, ``{kind:words}`` without underscores,
    ``{names:and}`` or ``{names:list}``. Any other form is a noun to count: ``{failures:run}`` is
    "1 run" or "2 runs".
    """
    return sentence.format(**{name: _Written(figure) for name, figure in figures.items()})


@dataclass(frozen=True, slots=True)
class _Written:
    """A figure in a sentence."""

    figure: Any

    def __format__(self, form: str) -> str:
        """Format a number with up to three decimal places, without trailing zeros."""
        figure = self.figure
        if (write := _FORMS.get(form)) is not None:
            return write(figure)
        is_number = isinstance(figure, SupportsFloat)
        if form and is_number:
            return f"{_short(figure)} {form if figure == 1 else f'{form}s'}"
        return _short(figure) if is_number and not isinstance(figure, int) else str(figure)


def _short(figure: SupportsFloat) -> str:
    return f"{float(figure):.3f}".rstrip("0").rstrip(".")


_FORMS: Mapping[str, Callable[[Any], str]] = {
    "duration": lambda figure: duration_text(round(figure)),
    "instant": to_the_second,
    "moment": format_instant,
    "seconds": lambda figure: f"{figure / SECOND:.1f} s",
    "percent": lambda figure: f"{_short(figure * 100)} %",
    "bytes": lambda figure: bytes_text(round(figure)),
    "words": lambda figure: str(figure).replace("_", " "),
    "and": " and ".join,
    "list": ", ".join,
    "several": "; ".join,
}


def first_few(words: Sequence[str], between: str = ", ", shown: int = 5) -> str:
    """Return the first of some words, and how many more there are."""
    omitted = len(words) - shown
    return between.join(words[:shown]) + (f" and {omitted} more" if omitted > 0 else "")
