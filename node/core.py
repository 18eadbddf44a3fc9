"""The values that most services of a node are built from."""

from __future__ import annotations

from dataclasses import dataclass

from node.clock import Clock
from node.settings import Settings
from node.store.database import Database
from node.trust.signer import Signer


@dataclass(frozen=True)
class Core:
    """This node's database, clock, identity (its public key), and settings.

    ``signer`` signs with its key; a simulated node has none.
    """

    database: Database
    clock: Clock
    identity: str
    settings: Settings
    signer: Signer | None = None
