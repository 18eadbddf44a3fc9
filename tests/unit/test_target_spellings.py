"""Two hundred ways to write an address that a foreign task must not reach; none gets through."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest
from pydantic import ValidationError

from node.model.targets import TargetRules, addresses_refusal, host_refusal
from node.plugins import registry
from node.plugins.tools.programs import target
from tests.support.target_spellings import (
    IN_URLS,
    IPV6,
    OWN,
    as_ipv4,
    inside_ipv6,
    spellings,
)

RULES = TargetRules(frozenset({ipaddress.ip_address(OWN)}), 8642, private=())
FORMS = 200


def _gets_through(host: str) -> bool:
    """Return whether a host is measured: as written, or as the system's library reads it."""
    if host_refusal(host, 80, RULES) is not None:
        return False
    try:
        found = socket.getaddrinfo(host, 80, flags=socket.AI_NUMERICHOST)
    except OSError:
        return False  # nobody takes it for an address: it is looked up, and what is found is judged
    addresses = [str(sockaddr[0]) for *_, sockaddr in found]
    return addresses_refusal(host, addresses, 80, RULES) is None


def test_no_form_of_a_forbidden_address_gets_through() -> None:
    """However an address is written, it is refused, or is no address to anybody."""
    matrix = spellings()
    assert len(set(matrix)) >= FORMS
    assert [host for host in matrix if _gets_through(host)] == []


def test_all_forms_are_judged_before_a_look_up() -> None:
    """Each form is refused as it is written, so that the task is refused at its introduction."""
    assert [host for host in spellings() if host_refusal(host, 80, RULES) is None] == []


def test_the_same_forms_of_a_public_address_get_through() -> None:
    """The address is refused, and not the way in which it is written."""
    public = [*as_ipv4("8.8.8.8"), *inside_ipv6("8.8.8.8")]
    assert [host for host in public if host_refusal(host, 80, RULES) is not None] == []


def _hosts_of(test_name: str, fields: dict[str, Any]) -> list[str]:
    """Return the hosts of a spec; none if it is no spec."""
    test = registry.tests()[test_name]
    try:
        spec = test.spec_model.model_validate(fields)
    except ValidationError:
        return []
    return list(test.hosts(spec))


@pytest.mark.parametrize("test_name", ["http", "tcp", "dns", "rtt", "tls", "trace"])
def test_no_form_in_a_document_gets_through(test_name: str) -> None:
    """A host that only looks like another one is no host, or it is refused as what it is."""
    for host in [*spellings(), *IN_URLS]:
        bracketed = f"[{host}]" if ":" in host and host.partition("%")[0] in IPV6 else host
        fields: dict[str, Any] = {"dest": host.strip("[]"), "port": 80}
        if test_name == "http":
            fields = {"url": f"http://{bracketed}/"}
        elif test_name == "dns":
            fields = {"name": "a.example", "server": host.strip("[]")}
        elif test_name in {"rtt", "trace"}:
            del fields["port"]
        through = [it for it in _hosts_of(test_name, fields) if _gets_through(it)]
        assert through == [], host


def test_a_name_that_changes_its_address_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look-up is judged, and connections are made to what was judged, not to the name."""
    answers = [["8.8.8.8"], ["8.8.8.8", "127.0.0.1"], ["169.254.169.254"], ["::ffff:10.7.0.9"]]

    def resolved(_host: str, port: int, _version: object, flags: int) -> list[target.Address]:
        if flags:
            raise socket.gaierror
        return [(socket.AF_INET, (address, port)) for address in answers.pop(0)]

    monkeypatch.setattr(target, "_resolve", resolved)
    deadline = target.Deadline(10**10)
    found = target.look_up("rebinding.example", 80, None, deadline, RULES)
    assert [address for _, address in found] == [("8.8.8.8", 80)]
    for _ in range(3):
        with pytest.raises(target.TargetUnreachable, match="must not reach"):
            target.look_up("rebinding.example", 80, None, deadline, RULES)
