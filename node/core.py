"""The values that most services of a node are built from."""

from __future__ import annotations

from dataclasses import dataclass, field

from node.clock import Clock
from node.instruments import Instruments
from node.settings import Settings
from node.store.database import Database
from node.trust.signer import Signer


@dataclass(frozen=True)
class Core:
    """This node's database, clock, identity (its public key), and settings.

    ``signer`` signs with its key; a simulated node has none. ``instruments`` are those of this
    process.
    """

    database: Database
    clock: Clock
    identity: str
    settings: Settings
    signer: Signer | None = None
    instruments: Instruments = field(default_factory=Instruments)
