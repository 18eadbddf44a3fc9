"""pScheduler's idleex: doing nothing for a while, with the host to itself. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from node.plugins.tests.idle import TEST
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Language, ParleyTest, Participants
from node.pscheduler.tests.idle import COMMENTS, DURATION, IdlingLanguage, idle_of
from node.pscheduler.tests.language import without_none
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import text

_MISSPELT = "host_node"
"""The member that the option ``--host-node`` sets; the spec's own is ``host-node``."""


class IdleExLanguage(IdlingLanguage):
    """Doing nothing for a while, with the host to itself."""

    name = "idleex"
    description = "Do nothing for a while, with the host to itself"
    scheduling_class = "exclusive"
    options = (
        DURATION,
        text("-H --host", "The host"),
        text("--host-node", "Node on that host, if it has another name", _MISSPELT),
        *COMMENTS,
    )
    members = {
        "duration": Member(types.duration, required=True),
        "host": Member(types.host),
        "host-node": Member(types.host_and_port),
        _MISSPELT: Member(types.host_and_port),
        "starting-comment": Member(types.text),
        "parting-comment": Member(types.text),
    }
    is_open = True

    def participants(self, spec: Document) -> Participants:
        """Return the host: by its node if that is named, in whichever spelling."""
        host = spec.get("host-node", spec.get(_MISSPELT, spec.get("host")))
        return Participants((host,), None if host is not None else "No source specified")

    def translated_test(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our idle in the exclusive class."""
        return idle_of(spec, hosts, self.scheduling_class)

    def from_parley(self, test_type: str, spec: Document) -> Document | None:
        """Return the spec of an exclusive idle on one host."""
        hosts = spec.get("participants") or [None]
        if (test_type, spec.get("class")) != (TEST.name, self.scheduling_class) or len(hosts) > 1:
            return None
        members = {"duration": spec.get("duration", "PT1S"), "host": hosts[0]}
        return {"schema": 1, **without_none(members)}


LANGUAGE: Language = IdleExLanguage()
