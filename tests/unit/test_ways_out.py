"""To whom a host may send, by who asked and in which role."""

from __future__ import annotations

import ipaddress

import pytest

from node.model.targets import TargetRules, literal
from node.model.ways_out import WAYS, Asker, Reach, Role, reach_of, refusal, url_refusal

OWN = ipaddress.ip_address("198.51.100.1")
NODE = ipaddress.ip_network("10.1.2.3")
RULES = TargetRules(frozenset({OWN}), 8642, private=(NODE,))
PUBLIC, PRIVATE, KNOWN = "203.0.113.9", "10.9.9.9", "10.1.2.3"
INNER = ("127.0.0.1", "169.254.169.254", "fe80::1", "224.0.0.1", str(OWN), "0x7f.1")


def test_every_role_has_a_word_for_every_asker() -> None:
    """The table says something of each role and each asker."""
    assert {role: set(askers) for role, askers in WAYS.items()} == {
        role: set(Asker) for role in Role
    }


@pytest.mark.parametrize("role", Role)
def test_the_owner_names_what_the_owner_likes(role: Role) -> None:
    """The owner's word is good for every address, in whatever role, inner ones too."""
    assert reach_of(Asker.OWNER, role) is Reach.ANY
    assert [refusal(Asker.OWNER, role, host, RULES) for host in (*INNER, PRIVATE, "x.lan")] == (
        [None] * 8
    )


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("asker", [each for each in Asker if each is not Asker.OWNER])
def test_nobody_else_reaches_the_host_itself(asker: Asker, role: Role) -> None:
    """No other word reaches loopback, the link, a metadata service, or this host, in any role."""
    for host in INNER:
        assert refusal(asker, role, host, RULES) is not None
        found = [PUBLIC, literal(host) or host]
        looked_up = refusal(asker, role, "x.example", RULES, addresses=found)
        assert looked_up is not None


REACHED = {
    Reach.NEIGHBOURS: {PUBLIC, PRIVATE, KNOWN},
    Reach.TARGETS: {PUBLIC, KNOWN},
    Reach.PUBLIC: {PUBLIC},
    Reach.NONE: set(),
}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("asker", [each for each in Asker if each is not Asker.OWNER])
def test_private_addresses(asker: Asker, role: Role) -> None:
    """A private address is reached where the table says so, and by a target if a node has it."""
    hosts = (PUBLIC, PRIVATE, KNOWN)
    reached = {host for host in hosts if refusal(asker, role, host, RULES) is None}
    assert reached == REACHED[reach_of(asker, role)]


def test_urls() -> None:
    """A URL is judged by its host and port; what is no URL of HTTP is refused in words."""

    def judged(url: str, addresses: list[str] | None = None) -> str | None:
        return url_refusal(Asker.PUBLISHER, Role.DOCUMENT, url, RULES, addresses)

    assert judged(f"https://{PUBLIC}/t.json") is None
    assert judged("https://x.example/t.json") is None
    assert "a loopback address" in str(judged("http://127.0.0.1:80/"))
    assert "a private address" in str(judged("http://x.example/", [PRIVATE]))
    assert "is no URL of http or https" in str(judged("file:///etc/passwd"))
    for broken in ("http://[::1", "https://[", "http://x:99999/"):
        assert "is no URL" in str(judged(broken))
    for inner in ("\u2460\u2461\u2466.0.0.1", "127\u30020\uff0e0\uff611", "\uff10x7f.1"):
        assert "a loopback address" in str(judged(f"http://{inner}:80/"))
    assert judged("https://b\u00fccher.example/") is None
    own = url_refusal(Asker.NODE, Role.PEER, f"https://{OWN}:8642", RULES)
    assert "must never reach" in str(own)
