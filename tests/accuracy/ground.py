"""Two namespaces with an emulated WAN between them, of which the truth is known afterwards."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from node.clock import SystemClock
from node.execution import process
from node.execution.trial import Trial, attempt
from node.lab import wan
from node.lab.namespaces import Namespaces, NamespaceSite
from node.lab.wan import WanSettings
from node.plugins.contracts import Command, PartContext, Test, Tool

NAMES = ("a.example", "b.example")


@dataclass(frozen=True)
class Direction:
    """What the emulator did with the packets of one direction."""

    taken: int = 0
    lost: int = 0
    tail: int = 0

    @property
    def loss(self) -> float:
        """The fraction that did not arrive."""
        return (self.lost + self.tail) / self.taken if self.taken else 0.0


@dataclass
class Truth:
    """What really happened; filled in when the emulator has ended."""

    forward: Direction = field(default_factory=Direction)
    backward: Direction = field(default_factory=Direction)
    late_ms_max: float = 0.0


class Placed:
    """A tool whose commands run in a namespace for each participant."""

    def __init__(self, tool: Tool, namespaces: Sequence[str]) -> None:
        """Participant ``i`` runs in ``namespaces[i]``."""
        self._tool = tool
        self._namespaces = namespaces

    def __getattr__(self, name: str) -> Any:
        """All but the command is the tool's own."""
        return getattr(self._tool, name)

    def command(self, part: PartContext) -> Command:
        """The tool's command, inside."""
        command = self._tool.command(part)
        inside = ("ip", "netns", "exec", self._namespaces[part.participant])
        return replace(command, argv=(*inside, *command.argv))


class Ground:
    """The namespaces ``a`` and ``b``, kept over many WANs."""

    def __init__(self, sites: Sequence[NamespaceSite]) -> None:
        """Use sites that exist."""
        self.sites = sites

    def address(self, place: int, ip_version: int) -> str:
        """Of ``a`` (0) or ``b`` (1) in the WAN."""
        site = self.sites[place]
        return site.address if ip_version == 4 else site.address6

    @contextlib.asynccontextmanager
    async def wan(self, settings: WanSettings) -> AsyncIterator[Truth]:
        """A WAN of these settings; the truth is complete when it has been left."""
        words = wan.arguments([site.site for site in self.sites], settings)
        emulator = await process.start([sys.executable, "-m", "node.lab.wan", *words])
        truth = Truth()
        try:
            await emulator.printed(wan.READY)
            yield truth
        finally:
            await emulator.end(5.0)
        report = json.loads((await emulator.wait()).stdout.partition(wan.READY)[2])
        truth.late_ms_max = report["late_ms_max"]
        first = self.sites[0].namespace
        for each in report["directions"]:
            counted = Direction(each["taken"], each["lost"], each["tail"])
            if each["sender"] == first:
                truth.forward = counted
            else:
                truth.backward = counted

    async def measure(self, test: Test, tool: Tool, spec: Any, ip_version: int) -> Trial:
        """One run between ``a`` and ``b``."""
        placed = cast(Tool, Placed(tool, [site.namespace for site in self.sites]))
        places = {name: self.address(at, ip_version) for at, name in enumerate(NAMES)}
        places["this-host"] = self.address(0, ip_version)
        return await attempt(test, placed, spec, SystemClock(), places)


@contextlib.contextmanager
def ground() -> Any:
    """Two new namespaces; needs root."""
    namespaces = Namespaces(["a", "b"])
    try:
        yield Ground(namespaces.create())
    finally:
        namespaces.remove()
