"""Conditions on a run that is over: a figure beyond a bound, a judgement, an alert. Pure.

A condition is what people write: ``loss.forward > 1 % or no-answer``. Figures have the names that
``run list -o csv`` gives them, with a direction or for any of them; judgements are the words of
outcomes; ``alert`` is any alert of the task that is raised, ``alert loss.forward`` is that one.
Parts are joined by ``and``, and what they make by ``or``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from node.model.outcome import Figure, Judgement, full_name
from node.model.similar import suggestion

JUDGEMENTS = (
    Judgement.GOOD,
    Judgement.FAIR,
    Judgement.BAD,
    Judgement.NO_ANSWER,
    Judgement.FAILED,
    Judgement.MISSED,
)
"""The judgements of runs that took place, or should have."""
ALERT = "alert"
UNUSUAL = ":change"
"""The end of the name of a rule about what is usual."""

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_FACTORS = {"": 1.0, "%": 0.01, "k": 1e3, "M": 1e6, "G": 1e9}
_NAME = r"[a-z][a-z0-9_]{0,62}(?:\.[A-Za-z0-9_-]{1,63}){0,3}"
_FIGURE = re.compile(
    rf"({_NAME})\s*(>=|<=|>|<)\s*([0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?)\s*([%kMG]?)([a-z]*)", re.ASCII
)
_RAISED = re.compile(rf"{ALERT}(?:\s+({_NAME}(?::change)?))?", re.ASCII)
_OR, _AND = re.compile(r"\s+or\s+"), re.compile(r"\s+and\s+")
_EXAMPLE = "loss.forward > 1 % or no-answer or alert delay_median_ms"


@dataclass(frozen=True)
class FigureBound:
    """A figure of this name is beyond a value; without a direction, in any."""

    name: str
    comparison: str
    value: float


@dataclass(frozen=True)
class RaisedAlert:
    """An alert of this rule is raised; None: of any rule of the task."""

    rule: str | None


Part = FigureBound | Judgement | RaisedAlert
Condition = tuple[tuple[Part, ...], ...]
"""A condition, which holds if all parts of one of its members do."""


def parse_condition(text: str) -> Condition:
    """Parse a condition.

    :raises ValueError: it is none; says which part is wrong, and what may have been meant.

    >>> parse_condition("loss.forward > 1 %")
    ((FigureBound(name='loss.forward', comparison='>', value=0.01),),)
    """
    return tuple(
        tuple(_parse_part(part.strip()) for part in _AND.split(member))
        for member in _OR.split(text.strip())
    )


def _parse_part(text: str) -> Part:
    if (figure := _FIGURE.fullmatch(text)) is not None:
        name, comparison, number, factor, unit = figure.groups()
        own = name.partition(".")[0].rpartition("_")[2]
        if unit and unit != own:
            msg = f"{text}: the values of {name} have the unit of its name, and not {unit}"
            raise ValueError(msg)
        return FigureBound(name, comparison, float(number) * _FACTORS[factor])
    if (raised := _RAISED.fullmatch(text)) is not None:
        return RaisedAlert(raised[1])
    if text in JUDGEMENTS:
        return Judgement(text)
    if re.fullmatch(r"[a-z-]+", text):
        hint = suggestion(text, [*JUDGEMENTS, ALERT])
        msg = f"{text} is no judgement (a figure needs a bound, such as {text} > 1): {hint}"
        raise ValueError(msg)
    msg = f"{text or 'nothing'} is no condition; write one like: {_EXAMPLE}"
    raise ValueError(msg)


def parts_of(condition: Condition) -> Iterator[Part]:
    """Yield all parts of a condition."""
    for member in condition:
        yield from member


def what_holds(
    condition: Condition,
    judgement: Judgement,
    figures: Sequence[Figure],
    raised: Collection[str],
) -> str | None:
    """Return what of a condition a run meets, in words; None if it does not meet it.

    ``raised`` are the names of the raised rules of its task.

    >>> what_holds(parse_condition("failed or good"), Judgement.GOOD, (), ())
    'it is good'
    """
    for member in condition:
        found = [_why(part, judgement, figures, raised) for part in member]
        if None not in found:
            return " and ".join(filter(None, found))
    return None


def _why(
    part: Part, judgement: Judgement, figures: Sequence[Figure], raised: Collection[str]
) -> str | None:
    match part:
        case Judgement():
            return f"it is {part}" if part is judgement else None
        case RaisedAlert(rule):
            names = sorted(name for name in raised if rule in {None, name, rule_family(name)})
            return f"the alert {names[0]} is raised" if names else None
        case FigureBound(wanted, comparison, bound):
            beyond = _COMPARISONS[comparison]
            return next(
                (
                    f"{name} is {figure.value:g}"
                    for figure in figures
                    if wanted in {name := full_name(figure), figure.name}
                    and beyond(figure.value, bound)
                ),
                None,
            )


def rule_family(name: str) -> str:
    """Return the name of a rule for all directions.

    >>> rule_family("loss.forward"), rule_family("loss.forward:change")
    ('loss', 'loss:change')
    """
    figure, unusual, _ = name.partition(UNUSUAL)
    return figure.partition(".")[0] + unusual
