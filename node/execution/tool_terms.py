"""The terms of all tools of a node: as whom they run, from where, in which networks, within limits.

Whoever starts the tool runner (:mod:`.tool_runner_program`) fixes them, by an argument. Where root
has started it for a node of another account, that node chooses among what the terms allow and
nothing else: it must not become root again by what root starts for it (``lent``). Only a runner
that systemd has started, which has no rights but those of the account ``parley-tool``, takes the
terms from the messages of the node.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MARK = "PARLEY_PART"
"""The variable by which a tool's descendants are found (:mod:`.process_marks`)."""
NAMESPACES = Path("/run/netns")
"""The directory in which ``ip netns`` keeps named network namespaces."""

Account = tuple[int, int]


@dataclass(frozen=True)
class ToolTerms:
    """The terms of a node's tools.

    ``accounts``: the preferred one first. ``programs``: what all of Parley's own programs need.
    ``readable``: where this program and its plug-ins are. ``hidden``: the node's own directory.
    ``path``: where programs are looked up. ``namespaces``: the networks that tools may enter.
    ``limits``: of each tool (:class:`node.model.tool_limits.ToolLimits`). ``lent``: root runs tools
    for a node that is not root. ``at_once``: the most tools at a time.
    """

    accounts: Sequence[str]
    programs: Sequence[str]
    readable: Sequence[str]
    hidden: str
    path: str
    namespaces: Sequence[str]
    limits: Mapping[str, int]
    lent: bool = False
    at_once: int = 1024

    def as_words(self) -> dict[str, Any]:
        """Return the terms as they travel in JSON."""
        return asdict(self)

    def as_argument(self) -> str:
        """Return the terms as the argument of a runner."""
        return json.dumps(self.as_words())

    def account(self) -> tuple[str, Account] | None:
        """Return the first of the accounts that exists; None if tools keep that of this process.

        :raises PermissionError: they would be root, and the runner is lent.
        """
        for name in self.accounts if os.geteuid() == 0 else ():
            with contextlib.suppress(KeyError):
                entry = pwd.getpwnam(name)
                if entry.pw_uid != 0 or not self.lent:
                    return name, (entry.pw_uid, entry.pw_gid)
        self.refuse_root("there is no account for tools")
        return None

    def refuse_root(self, why: str) -> None:
        """Refuse to start a tool as root, if the runner is lent.

        :raises PermissionError: it is.
        """
        if self.lent:
            raise PermissionError(1, f"{why}, and this node starts no program as root")

    def program(self, name: str) -> str:
        """Return the path of a program: one on the PATH, or of this program and its plug-ins.

        :raises FileNotFoundError: it is elsewhere, or nowhere.
        """
        path = shutil.which(name, path=self.path)
        if path is None or ("/" in name and not self._offers(path)):
            raise FileNotFoundError(2, "it is not on the PATH")
        return path

    def _offers(self, path: str) -> bool:
        own = map(os.path.realpath, [*self.readable, *self.programs])
        real = os.path.realpath(path)
        return os.path.dirname(path) in self.path.split(":") or any(  # noqa: PTH120 - a string
            os.path.commonpath([place, real]) == place for place in own
        )

    def network(self, name: str | None) -> Path | None:
        """Return the network namespace of this name; None without a name.

        :raises PermissionError: tools may not enter it.
        """
        if name is None:
            return None
        if name not in self.namespaces:
            raise PermissionError(1, f"its owner does not allow the network namespace {name}")
        return NAMESPACES / name

    def places(self) -> list[str]:
        """Return the directories that programs are read from."""
        places = {*self.readable, *self.path.split(":")}
        return sorted(place for place in places if os.path.isdir(place))  # noqa: PTH112 - a string
