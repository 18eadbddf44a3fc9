"""Division by weight, limited by demand: water-filling in exact arithmetic. Pure.

The share of member s is ``x_s = R · w_s / Σ w``. A member that wants no more than that gets what it
wants; the remainder is divided again among the others, until no demand limits a share. Weights are
taken literally and scaled to whole numbers, so nothing is rounded before the last step and 60 never
becomes 61.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from lead.policy.view import Exact


@dataclass(frozen=True, slots=True)
class Division:
    """The members limited by their demand, and the whole weights by which the rest is divided.

    An unlimited member's exact share is ``rest / parts · weight / total``.
    """

    limited: Mapping[str, int]
    weights: Mapping[str, int]
    rest: int
    parts: int
    total: int

    def exact_shares(self) -> dict[str, Fraction]:
        """Return every member's exact share."""
        shares = {name: Fraction(amount) for name, amount in self.limited.items()}
        whole_parts = self.total * self.parts
        for name, weight in self.weights.items():
            shares[name] = Fraction(self.rest * weight, whole_parts) if self.total else Fraction(0)
        return shares

    def rounded_shares(self, unit: int = 1) -> dict[str, int]:
        """Return every member's share; unlimited ones are rounded up to multiples of ``unit``."""
        shares = dict(self.limited)
        if not self.total:
            return shares | dict.fromkeys(self.weights, 0)
        whole_parts = self.total * self.parts * unit
        for name, weight in self.weights.items():
            shares[name] = -(-self.rest * weight // whole_parts) * unit
        return shares


def divide(
    amount: Exact, weights: Mapping[str, Exact], demand: Mapping[str, int | None]
) -> Division:
    """Divide among all that have a weight; a demand of None, or a missing one, is unlimited."""
    open_weights = dict(zip(weights, whole_weights(weights.values()), strict=True))
    total, rest, parts = sum(open_weights.values()), amount.numerator, amount.denominator
    limited: dict[str, int] = {}
    wanted = {name: most for name in weights if (most := demand.get(name)) is not None}
    while wanted:
        satisfied = {
            name: most
            for name, most in wanted.items()
            if most * parts * total <= rest * open_weights[name]
            and (open_weights[name] or not most)  # without weight, only no demand is satisfied
        }
        if not satisfied:
            break
        limited |= satisfied
        rest -= sum(satisfied.values()) * parts
        for name in satisfied:
            total -= open_weights.pop(name)
            del wanted[name]
    return Division(limited, open_weights, rest, parts, total)


def whole_weights(weights: Iterable[Exact]) -> list[int]:
    """Return the same proportions in whole numbers."""
    exact = list(weights)
    scale = lcm(*(weight.denominator for weight in exact))
    return [weight.numerator * (scale // weight.denominator) for weight in exact]
