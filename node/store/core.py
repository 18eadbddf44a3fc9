"""The values that most services of a node are built from."""

from __future__ import annotations

from dataclasses import dataclass, field

from node.model.audit import AuditEntry, AuditOutcome
from node.model.principals import Principal, PrincipalKind
from node.runtime.clock import Clock, StepWatcher
from node.runtime.instruments import Instruments
from node.runtime.settings import Settings
from node.store.database import Database
from node.trust.sealing import SealingKey
from node.trust.signer import Signer


@dataclass(frozen=True)
class Core:
    """This node's database, clock, identity (its public key), and settings.

    ``signer`` signs with its key; a simulated node has none. ``instruments`` are those of this
    process. ``sealing`` seals secrets; without one of a state directory it is a new one. ``steps``
    says whether the clock is to be trusted.
    """

    database: Database
    clock: Clock
    identity: str
    settings: Settings
    signer: Signer | None = None
    instruments: Instruments = field(default_factory=Instruments)
    sealing: SealingKey = field(default_factory=SealingKey.generate)
    steps: StepWatcher = field(init=False)

    def __post_init__(self) -> None:
        """Make the watcher of the steps of this clock."""
        watcher = StepWatcher(self.clock, self.settings.clock_doubt)
        object.__setattr__(self, "steps", watcher)

    def own_entry(
        self, verb: str, thing: str, outcome: AuditOutcome, problem: str | None = None
    ) -> AuditEntry:
        """Return the entry of the audit for what this node did by itself, now."""
        this_node = Principal(PrincipalKind.NODE, self.settings.name, key=self.identity)
        return AuditEntry(self.clock.now(), this_node, verb, outcome, thing, problem=problem)
