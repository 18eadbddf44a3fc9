"""Every way out of a host obeys one rule: who asks, and in which role something is sent to. Pure.

Whatever this host sends to on somebody's word has a role: it is a target of a measurement, another
participant, an archive, a webhook, a document to fetch, an issuer of tokens, or another node. The
table ``WAYS`` says for each role what the word of each asker is good for.

:func:`refusal` decides by it about a target, a participant, a node that says where it is, and what
a published document, or that of an issuer, names. In the other roles the owner alone has a word,
which the table records and the rights of callers enforce: :mod:`.permissions` for archives,
webhooks and nodes that are added, :mod:`.named_archives` for the archives of a task (a client of
the façade may name one that the owner has written down, which is the owner's word), and the
settings for the issuer, whose keys come by TLS (:mod:`.oidc`).
``tests/architecture/test_ways_out.py`` compares the routes with it.

What the owner names may be any address, an inner one too, since it is the owner's own network.
Everybody else is bound by the rules for targets (:mod:`node.model.targets`), which are about an
address after its look-up, or is refused.

A name is judged by its addresses: ``node/execution/ways_out.py`` looks them up, and connects to
these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final
from urllib.parse import SplitResult, urlsplit

from node.model.reason import Reason
from node.model.reasons import asker_may_not_name, not_a_url, not_a_url_of_http
from node.model.targets import TargetRules, addresses_refusal, host_refusal


class Asker(StrEnum):
    """The party whose word it is that this host should send something."""

    OWNER = "owner"
    """A token of the role ``own`` or ``operate``, a setting, a file, or a command of the owner."""
    USER = "user"
    """A token of the role ``run``, a client of the pScheduler interface, or ``parley-follow``."""
    NODE = "node"
    """Another node: the lead of a task, or one that says where it is."""
    PUBLISHER = "publisher"
    """The publisher of a document that this host fetches, as far as that names other places.

    The issuer is one, of the document that says where its keys are, and so is whoever has made a
    directory of nodes.
    """


class Role(StrEnum):
    """The role of a host to which something is sent."""

    TARGET = "target"
    """A host that takes no part in the measurement of it."""
    PARTICIPANT = "participant"
    """A known node that takes part; one that is not known here is a target."""
    ARCHIVE = "archive"
    WEBHOOK = "webhook"
    DOCUMENT = "document"
    """A template, or what it includes."""
    ISSUER = "issuer"
    """An OpenID Connect issuer, and the keys to which it points."""
    PEER = "peer"
    """A node that is added, or that follows another host."""


class Reach(StrEnum):
    """The addresses that somebody's word is good for."""

    ANY = "any"
    """Every address."""
    NEIGHBOURS = "neighbours"
    """Targets, and every private address."""
    TARGETS = "targets"
    """Targets: of private addresses only those of known nodes."""
    PUBLIC = "public"
    """Targets, and no private address."""
    NONE = "none"
    """No address."""


_NOBODY_ELSE: Final = {Asker.USER: Reach.NONE, Asker.NODE: Reach.NONE, Asker.PUBLISHER: Reach.NONE}

WAYS: Final[Mapping[Role, Mapping[Asker, Reach]]] = MappingProxyType(
    {
        Role.TARGET: {
            Asker.OWNER: Reach.ANY,
            Asker.USER: Reach.TARGETS,
            Asker.NODE: Reach.TARGETS,
            Asker.PUBLISHER: Reach.NONE,
        },
        Role.PARTICIPANT: {
            Asker.OWNER: Reach.ANY,
            Asker.USER: Reach.NEIGHBOURS,
            Asker.NODE: Reach.NEIGHBOURS,
            Asker.PUBLISHER: Reach.NONE,
        },
        Role.ARCHIVE: {Asker.OWNER: Reach.ANY, **_NOBODY_ELSE},
        Role.WEBHOOK: {Asker.OWNER: Reach.ANY, **_NOBODY_ELSE},
        Role.DOCUMENT: {
            Asker.OWNER: Reach.ANY,
            Asker.USER: Reach.NONE,
            Asker.NODE: Reach.NONE,
            Asker.PUBLISHER: Reach.PUBLIC,
        },
        Role.ISSUER: {
            Asker.OWNER: Reach.ANY,
            Asker.USER: Reach.NONE,
            Asker.NODE: Reach.NONE,
            Asker.PUBLISHER: Reach.PUBLIC,
        },
        Role.PEER: {
            Asker.OWNER: Reach.ANY,
            Asker.USER: Reach.NONE,
            Asker.NODE: Reach.NEIGHBOURS,
            Asker.PUBLISHER: Reach.NEIGHBOURS,
        },
    }
)
"""By role and asker, the addresses to which this host may send."""

_PORTS: Final = {"http": 80, "https": 443}


def reach_of(asker: Asker, role: Role) -> Reach:
    """Return the addresses for which an asker's word is good in a role."""
    return WAYS[role][asker]


def refusal(
    asker: Asker,
    role: Role,
    host: str,
    rules: TargetRules,
    *,
    port: int | None = None,
    addresses: Iterable[str] | None = None,
) -> Reason | None:
    """Return why this host sends nothing to another one for an asker; None if it may.

    ``rules`` are those of this host; their ``private`` are the private addresses of known nodes.
    ``addresses`` are those that the host has by its look-up; None if it was not looked up yet. Then
    a name may still be refused by its addresses: ask again, and send to the addresses that were
    judged, not to what another look-up finds.
    """
    reach = reach_of(asker, role)
    if reach is Reach.ANY:
        return None
    if reach is Reach.NONE:
        return asker_may_not_name(host, _article(role), _article(asker))
    bound = _rules_for_reach(reach, rules)
    if addresses is None:
        return host_refusal(host, port, bound)
    return addresses_refusal(host, addresses, port, bound)


def url_refusal(
    asker: Asker,
    role: Role,
    url: str,
    rules: TargetRules,
    addresses: Iterable[str] | None = None,
) -> Reason | None:
    """Return why this host asks nothing of a URL of HTTP for an asker; None if it may.

    A redirect is another URL, and is to be judged anew.
    """
    try:
        parts: SplitResult = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        return not_a_url(url, str(error))
    if parts.scheme not in _PORTS or not host:
        return not_a_url_of_http(url)
    port = _PORTS[parts.scheme] if port is None else port
    return refusal(asker, role, host, rules, port=port, addresses=addresses)


def port_of(url: str) -> int | None:
    """Return the port of a URL of HTTP; None if it is no such URL."""
    try:
        parts = urlsplit(url)
        return parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None


def _rules_for_reach(reach: Reach, rules: TargetRules) -> TargetRules:
    """Return the rules of this host as they bind somebody with this reach."""
    if reach is Reach.TARGETS:
        return rules if rules.private is not None else replace(rules, private=())
    return replace(rules, private=None if reach is Reach.NEIGHBOURS else (), content=None)


def _article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"
