"""The plan of a round of chaos: operations, durations and rates, all in seconds unless noted."""

from __future__ import annotations

from dataclasses import dataclass

HORIZON_H = 6
"""Hours ahead that the nodes book and for which tasks are requested."""


@dataclass(frozen=True)
class Plan:
    """A round; the same seed draws the same operations and faults, which interleave differently."""

    operations: int = 100_000
    seed: int = 1
    minutes: float = 120.0
    nodes: int = 5
    clients: int = 48
    fault_every_s: float = 2.0
    hold_life_s: float = 8.0
    lease_s: float = 8.0
    peer_timeout_s: float = 2.0
    outage_s_max: float = 12.0
    hang_s: tuple[float, float] = (5.0, 60.0)
    host_faults: bool = True
    """True to fill disks, set clocks, restore databases, and have a node of ``parley up``."""
    only: tuple[str, ...] = ()
    """The faults to which a round is confined; each happens once before any happens again."""
    settle_s: float = 180.0
    """The time in which what is left to do has to become less."""
    young_s: float = 12.0
    """Somewhat more than the age from which on ``unsaid`` counts what has not left."""
    wait_for_repairs: bool = True
    """True to wait until participants have asked about tasks that their leads do not have."""

    @property
    def environment(self) -> dict[str, str]:
        """Return the settings of every node and lead."""
        return {
            "PARLEY_HORIZON": f"PT{HORIZON_H}H",
            "PARLEY_HOLD_LIFE": f"PT{self.hold_life_s:g}S",
            "PARLEY_LEASE": f"PT{self.lease_s:g}S",
            "PARLEY_PEER_TIMEOUT": f"PT{self.peer_timeout_s:g}S",
            "PARLEY_PART_GRACE": "PT10S",
        }
