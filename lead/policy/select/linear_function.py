"""Nodes by a linear function of figures that an operator writes down. Pure.

For example ``speed + 0.01*mbps - 10*runs``: terms with a coefficient, a figure, or both, in any
order, with ``+``, ``-`` and ``*`` between them and no brackets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

_TERM = re.compile(
    r"\s*(?P<sign>[+-])?\s*"
    r"(?:(?P<number>\d+(?:\.\d+)?|\.\d+)(?:\s*\*\s*(?P<scaled>[A-Za-z_]\w*))?"
    r"|(?P<figure>[A-Za-z_]\w*)(?:\s*\*\s*(?P<factor>\d+(?:\.\d+)?|\.\d+))?)\s*"
)


@dataclass(frozen=True, slots=True)
class Linear:
    """A coefficient by figure, and what is added to all."""

    coefficients: Mapping[str, Fraction]
    constant: Fraction = Fraction(0)


def parse(text: str) -> Linear:
    """What an operator wrote; :class:`ValueError` says where it is not a linear function."""
    coefficients: dict[str, Fraction] = {}
    constant = Fraction(0)
    at = 0
    while at < len(text) or at == 0:
        found = _TERM.match(text, at)
        if found is None or (at > 0 and not found["sign"]):
            msg = f"no sum of figures from {text[at:]!r} on; write it like speed + 0.01*mbps"
            raise ValueError(msg)
        figure = found["scaled"] or found["figure"]
        amount = Fraction(found["number"] or found["factor"] or 1)
        amount = -amount if found["sign"] == "-" else amount
        if figure is None:
            constant += amount
        else:
            coefficients[figure] = coefficients.get(figure, Fraction(0)) + amount
        at = found.end()
    return Linear(coefficients, constant)


def value(function: Linear, figures: Mapping[str, Fraction | float]) -> Fraction:
    """The value for one node, exact; a figure that it does not have is 0."""
    total = function.constant
    for name, coefficient in function.coefficients.items():
        total += coefficient * Fraction(figures.get(name, 0))
    return total


def rank(
    function: Linear, nodes: Mapping[str, Mapping[str, Fraction | float]]
) -> Sequence[tuple[str, Fraction]]:
    """The nodes with their values, highest first; of two alike the one listed first."""
    values = {name: value(function, figures) for name, figures in nodes.items()}
    return sorted(values.items(), key=lambda it: -it[1])
