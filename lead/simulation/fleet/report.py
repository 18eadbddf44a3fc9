"""What came of a fleet: one line for each promise, with its bounds and what was found."""

from __future__ import annotations

from pydantic import computed_field

from node.model.wire.fields import Document


class FleetCheck(Document):
    """A promise of one set: for whom, within which bounds, and what was found.

    ``least`` and ``most`` are None where that side is not bounded.
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
        """Whether what was found lies within the bounds."""
        enough = self.least is None or self.found >= self.least
        return enough and (self.most is None or self.found <= self.most)

    @property
    def told(self) -> str:
        """In one sentence."""
        least = "" if self.least is None else f"at least {self.least:g}"
        most = "" if self.most is None else f"at most {self.most:g}"
        bounds = " and ".join(filter(None, (least, most)))
        return f"{self.trial}, {self.policy}, {self.who}: {self.found:g} {self.unit}, not {bounds}"


class FleetTrial(Document):
    """What was tried: what is promised, and where the bounds come from."""

    name: str
    promise: str
    checks: tuple[FleetCheck, ...]

    @property
    def broken(self) -> tuple[str, ...]:
        """What of it does not hold, each in one sentence."""
        return tuple(check.told for check in self.checks if not check.holds)


class FleetReport(Document):
    """What came of all of them."""

    title: str
    seed: int
    runs: int
    nodes: int
    sets: tuple[str, ...]
    trials: tuple[FleetTrial, ...]
    violations: tuple[str, ...]
