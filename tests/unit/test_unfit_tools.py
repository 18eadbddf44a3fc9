"""Tools that would measure wrong are not offered, with what to do as the reason."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from node.execution.catalog import Capabilities
from node.execution.privileges import UNLIMITED
from node.model.contexts import parse
from node.plugins.contracts import Requirement
from tests.unit.plugins.parts import spec


def capabilities(version: str | None) -> tuple[Capabilities, list[str]]:
    """Return what a host offers whose programs all have one version, and which were asked."""
    asked: list[str] = []

    def find_version(requirement: Requirement) -> str | None:
        asked.append(requirement.program)
        return version

    host = Capabilities(which="/usr/bin/{}".format, standing=lambda: UNLIMITED)
    host.know_versions(find_version)
    return host, asked


@pytest.mark.parametrize("version", ["3.9", "3.10.1", "2.1.5"])
def test_an_old_iperf3_is_not_offered(version: str) -> None:
    """The version is compared by its numbers, and the reason says what to do."""
    host, asked = capabilities(version)
    assert "iperf3" in asked  # when it is found
    offered, reasons = host.offers("throughput", spec("throughput"))
    assert "iperf3" not in offered
    assert reasons["iperf3"] == (
        f"iperf3 {version} is older than 3.11, the oldest version that is read right; "
        "install a newer iperf3"
    )


@pytest.mark.parametrize("version", ["3.11", "3.12", "4.0", "3.18+", None])
def test_others_are(version: str | None) -> None:
    """A version that is not known yet, or does not tell its number, refuses nothing."""
    host, _ = capabilities(version)
    assert "iperf3" in host.offers("throughput", spec("throughput"))[0]


def test_link_local_targets_need_an_interface() -> None:
    """Without one, ping would lose every packet; with one as the context, it is offered."""
    host, _ = capabilities(None)
    target = spec("rtt", dest="fe80::1")
    offered, reasons = host.offers("rtt", target)
    assert offered == ()
    assert "fe80::1 is link-local" in reasons["ping"]
    assert "--context NODE=interface:NAME" in reasons["ping"]
    assert "ping" in host.offers("rtt", target, context=parse("interface:eth0"))[0]
    assert "ping" in host.offers("rtt", spec("rtt", dest="2001:db8::1"))[0]
    with pytest.raises(ValidationError, match=r"write fe80::1, and name the interface .*:eth0"):
        spec("rtt", dest="fe80::1%eth0")
