"""Nodes by a linear function of their figures, which an operator writes. Pure.

For example ``speed + 0.01*mbps - 10*runs``: terms with a coefficient, a figure, or both, in any
order, joined by ``+``, ``-``, and ``*``, without brackets.
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
    """A coefficient by figure, and a constant."""

    coefficients: Mapping[str, Fraction]
    constant: Fraction = Fraction(0)


def parse(text: str) -> Linear:
    """Parse the text; raise :class:`ValueError` with the position that is not linear."""
    coefficients: dict[str, Fraction] = {}
    constant = Fraction(0)
    at = 0
    while at < len(text) or at == 0:
        term = _TERM.match(text, at)
        if term is None or (at > 0 and not term["sign"]):
            msg = f"cannot read {text[at:]!r} as a sum of figures; use e.g. speed + 0.01*mbps"
            raise ValueError(msg)
        figure = term["scaled"] or term["figure"]
        amount = Fraction(term["number"] or term["factor"] or 1)
        amount = -amount if term["sign"] == "-" else amount
        if figure is None:
            constant += amount
        else:
            coefficients[figure] = coefficients.get(figure, Fraction(0)) + amount
        at = term.end()
    return Linear(coefficients, constant)


def value(function: Linear, figures: Mapping[str, Fraction | float]) -> Fraction:
    """Return the exact value for one node; a figure that it lacks is 0."""
    total = function.constant
    for name, coefficient in function.coefficients.items():
        total += coefficient * Fraction(figures.get(name, 0))
    return total


def ranking(
    function: Linear, nodes: Mapping[str, Mapping[str, Fraction | float]]
) -> Sequence[tuple[str, Fraction]]:
    """Return the nodes with their values, the highest first; ties go to the node listed first."""
    values = {name: value(function, figures) for name, figures in nodes.items()}
    return sorted(values.items(), key=lambda it: -it[1])
