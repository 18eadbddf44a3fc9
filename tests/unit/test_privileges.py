"""The privileges of programs that this process starts, by the kernel's rules."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from node.execution.catalog import Capabilities
from node.execution.privileges import (
    Grant,
    ProcessPrivileges,
    grant_of,
    missing_privilege,
    process_privileges,
)
from node.model.errors import ToolUnavailable
from node.model.reason import Reason
from node.plugins import registry
from node.plugins.contracts import Privilege
from tests.unit.plugins.parts import spec

RAW = 1 << 13
ALL = (1 << 41) - 1
NOBODY = ProcessPrivileges(
    root=False, effective=0, bounding=ALL, ambient=0, no_new=False, echo=False
)
HARDENED = ProcessPrivileges(
    root=False, effective=RAW, bounding=RAW, ambient=RAW, no_new=True, echo=False
)
BARE = ProcessPrivileges(root=False, effective=0, bounding=0, ambient=0, no_new=True, echo=True)
ROOT = ProcessPrivileges(
    root=True, effective=ALL, bounding=ALL, ambient=0, no_new=False, echo=False
)
NOTHING, FILE, SETUID = Grant(), Grant(capabilities=RAW), Grant(root=True)

ALLOWED = {
    (NOBODY, FILE): {"echo", "raw"},
    (NOBODY, SETUID): {"echo", "raw", "root"},
    (HARDENED, NOTHING): {"echo", "raw"},
    (HARDENED, FILE): {"echo", "raw"},
    (HARDENED, SETUID): {"echo", "raw"},
    (BARE, NOTHING): {"echo"},
    (BARE, FILE): {"echo"},
    (BARE, SETUID): {"echo"},
    (ROOT, NOTHING): {"echo", "raw", "root"},
    (ROOT, FILE): {"echo", "raw", "root"},
    (ROOT, SETUID): {"echo", "raw", "root"},
}
"""Outcomes of ping, fping, traceroute -I, mtr and scamper under setpriv, with env in between."""


def test_privileges_of_files_and_processes() -> None:
    """A file's privileges count unless forbidden; ambient ones always count."""
    for who, file in itertools.product((NOBODY, HARDENED, BARE, ROOT), (NOTHING, FILE, SETUID)):
        allowed = {
            str(needed) for needed in Privilege if missing_privilege("p", needed, who, file) is None
        }
        assert allowed == ALLOWED.get((who, file), set()), (who, file)


@pytest.mark.parametrize(
    ("needed", "who", "file", "said"),
    [
        (Privilege.RAW, NOBODY, NOTHING, "AmbientCapabilities=CAP_NET_RAW in parley-tools"),
        (Privilege.ECHO, NOBODY, NOTHING, "or sysctl net.ipv4.ping_group_range"),
        (Privilege.ROOT, NOBODY, NOTHING, "its file is not set-user-ID root"),
        (Privilege.ROOT, HARDENED, SETUID, "tools get no new privileges here"),
    ],
)
def test_refusals_name_a_remedy(
    needed: Privilege, who: ProcessPrivileges, file: Grant, said: str
) -> None:
    """A refusal names the program, the privilege, and what grants it."""
    reason = missing_privilege("prog", needed, who, file)
    assert reason is not None
    assert reason.startswith("prog needs ")
    assert said in reason


def test_privileges_can_be_read(tmp_path: Path) -> None:
    """Our own privileges and those of a file can be read; a missing file grants nothing."""
    assert process_privileges().root == (os.geteuid() == 0)
    plain, raised = tmp_path / "plain", tmp_path / "raised"
    for path, mode in ((plain, 0o755), (raised, 0o4755)):
        path.touch()
        path.chmod(mode)
    assert grant_of(str(plain)) == grant_of(str(tmp_path / "absent")) == Grant()
    assert grant_of(str(raised)) == Grant(root=raised.stat().st_uid == 0)


def host(who: ProcessPrivileges, *programs: str) -> Capabilities:
    """Return a host with these programs, whose files grant nothing."""
    return Capabilities(lambda name: f"/absent/{name}" if name in programs else None, lambda: who)


def offers(
    where: Capabilities, asked: tuple[str, ...] = (), **fields: Any
) -> tuple[tuple[str, ...], dict[str, Reason]]:
    """Return the tools that a host offers for a path."""
    return where.offers("trace", spec("trace", **fields), asked)


def test_a_host_offers_what_it_has_and_may_do() -> None:
    """A tool is offered if it is installed, has its privileges, and can measure the spec."""
    hardened = host(HARDENED, "traceroute", "scamper", "tracepath", "mtr", "mtr-packet")
    offered, lacks = offers(hardened)
    assert offered == ("traceroute", "mtr", "tracepath")
    assert lacks == {
        "scamper": "scamper needs root's capabilities for a moment, and tools get no new "
        "privileges here"
    }
    bare = host(BARE, "traceroute", "tracepath")
    offered, lacks = offers(bare, protocol="icmp")
    assert offered == ()
    assert lacks["traceroute"].startswith("traceroute needs CAP_NET_RAW")
    assert lacks["tracepath"] == "tracepath cannot send ICMP"
    assert lacks["mtr"] == "mtr is not installed; apt install mtr-tiny"
    assert offers(bare)[0] == ("traceroute", "tracepath")
    assert offers(bare, ("tracepath",))[0] == ("tracepath",)


def test_the_choice_is_made_among_those_that_can() -> None:
    """A tool that cannot measure is not chosen, even if it is the first preference."""
    here = host(ROOT)
    udp, tcp = spec("trace"), spec("trace", protocol="tcp")
    both = [("scamper", "traceroute", "tracepath"), ("traceroute", "tracepath")]
    assert here.choose("trace", (), both, udp).name == "traceroute"
    assert here.choose("trace", ("tracepath", "traceroute"), both, udp).name == "tracepath"
    assert here.choose("trace", ("tracepath", "traceroute"), both, tcp).name == "traceroute"
    with pytest.raises(ToolUnavailable, match=r"no tool among tracepath .*cannot send TCP"):
        here.choose("trace", ("tracepath",), both, tcp)


NEEDED: dict[str, dict[str, str]] = {
    "nuttcp": {"congestion": "host"},
    "owping": {"responder": "owamp"},
    "powstream": {"responder": "owamp"},
}
"""The fields with which a tool measures, where they are not those of its test's example."""


@pytest.mark.parametrize("name", sorted(registry.tools()))
def test_every_tool_can_what_its_example_asks(name: str) -> None:
    """Every tool can measure its test's example, but for what it says that it cannot."""
    tool = registry.tools()[name]
    for test in tool.tests:
        known = registry.tests()[test]
        spec = known.spec_model.model_validate({**known.example, **NEEDED.get(name, {})})
        assert tool.can(spec) is None


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_a_tool_says_what_its_example_lacks(name: str) -> None:
    """A tool that cannot measure its test's example names the field that has to differ."""
    tool = registry.tools()[name]
    [field] = NEEDED[name]
    for test in tool.tests:
        known = registry.tests()[test]
        assert field in (tool.can(known.spec_model.model_validate(known.example)) or "")


@pytest.mark.parametrize(
    ("wanted", "controls", "open_controls", "effective", "said"),
    [
        ("cubic", {"cubic", "bbr"}, {"cubic"}, 0, None),
        ("bbr", {"cubic", "bbr"}, {"cubic"}, 1 << 12, None),
        ("bbr", {"cubic", "bbr"}, {"cubic"}, 0, "tcp_allowed_congestion_control='bbr cubic'"),
        ("bbr", {"cubic"}, {"cubic"}, ALL, "modprobe tcp_bbr"),
        ("bbr", None, None, 0, None),
    ],
)
def test_a_congestion_control_must_be_there_and_allowed(
    wanted: str,
    controls: set[str] | None,
    open_controls: set[str] | None,
    effective: int,
    said: str | None,
) -> None:
    """A congestion control that is missing, or only for root, is reported, and only for TCP."""
    who = ProcessPrivileges(
        root=False,
        effective=effective,
        bounding=ALL,
        ambient=0,
        no_new=False,
        echo=False,
        controls=None if controls is None else frozenset(controls),
        open_controls=None if open_controls is None else frozenset(open_controls),
    )
    here = host(who, "iperf3")
    lacks = here.offers("throughput", spec("throughput", congestion=wanted))[1].get("iperf3")
    assert (lacks is None) == (said is None)
    assert (said or "") in (lacks or "")
    assert lacks is None or "--congestion host" in lacks
    for harmless in ({"congestion": "host"}, {"protocol": "udp"}):
        assert here.offers("throughput", spec("throughput", **harmless))[0] == ("iperf3",)
