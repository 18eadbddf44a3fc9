"""The report of a fleet: for each promise its bounds and the measured value."""

from __future__ import annotations

from pydantic import computed_field

from node.model.wire.fields import Document


class FleetCheck(Document):
    """A promise of one set to one party, with its bounds and the measured value.

    ``least`` and ``most`` are None where that side is unbounded.
    """

    trial: str
    policy: str
    who: str
    unit: str
    promised: float
    least: float | None = None
    most: float | None = None
    found: float

    @computed_field  # type: ignore[prop-decorator] # pydantic reads the property under it
    @property
    def holds(self) -> bool:
        """Return whether the measured value lies within the bounds."""
        enough = self.least is None or self.found >= self.least
        return enough and (self.most is None or self.found <= self.most)

    @property
    def sentence(self) -> str:
        """Describe the broken promise in one sentence."""
        least = "" if self.least is None else f"at least {self.least:g}"
        most = "" if self.most is None else f"at most {self.most:g}"
        bounds = " and ".join(filter(None, (least, most)))
        return f"{self.trial}, {self.policy}, {self.who}: {self.found:g} {self.unit}, not {bounds}"


class FleetTrial(Document):
    """A trial: its promise and the checks of all sets."""

    name: str
    promise: str
    checks: tuple[FleetCheck, ...]

    @property
    def broken_checks(self) -> tuple[str, ...]:
        """Describe the checks that fail, each in one sentence."""
        return tuple(check.sentence for check in self.checks if not check.holds)


class FleetReport(Document):
    """The outcome of all trials."""

    title: str
    seed: int
    runs: int
    nodes: int
    sets: tuple[str, ...]
    trials: tuple[FleetTrial, ...]
    violations: tuple[str, ...]
