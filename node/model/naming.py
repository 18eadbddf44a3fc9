"""The words that stand for nodes: their names, addresses, and the hosts of their URLs. Pure.

A name belongs to one node: it is never another node's name, address, or host of a URL, so that no
node can take what is meant for another. An address or a host may belong to several nodes, as
behind one NAT or on one host; then the word stands for none of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from node.model.contexts import offered_contexts
from node.model.targets import literal


class Described(Protocol):
    """The facts about a node that its card states and the directory keeps."""

    @property
    def identity(self) -> str:
        """The public key, by which nodes tell each other apart."""

    @property
    def name(self) -> str:
        """The word for it that users type."""

    @property
    def url(self) -> str | None:
        """The URL of its API, if others can reach it."""

    @property
    def address(self) -> str:
        """The address that measurements use."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The facts by which pools choose, contexts with their addresses among them."""


CARDS_READ = 1 << 15
"""Number of cards whose words are kept once read: the directory is read again at each change."""

AnyNode = TypeVar("AnyNode", bound=Described)


def normalised_word(word: str) -> str:
    """Return a word as it is compared: an address in its shortest form, a name in small letters."""
    return literal(word) or word.removesuffix(".").lower()


def host_of(url: str | None) -> str | None:
    """Return the host of a URL, without port and brackets; None if there is none."""
    try:
        return urlsplit(url or "").hostname
    except ValueError:
        return None


def find_clash(card: Described, known: Iterable[Described]) -> str | None:
    """Return why a card's words cannot be told from another node's, and what to do; or None."""
    name, words = normalised_word(card.name), _words(card)
    for other in known:
        if other.identity == card.identity:
            continue
        is_self = getattr(other, "is_self", False)
        whose = "this node" if is_self else f"the node {other.name}"
        or_else = "give this node another name (PARLEY_NAME)" if is_self else f"remove {other.name}"
        renamed = f"let its owner give it another name (PARLEY_NAME), or {or_else}"
        if name == normalised_word(other.name):
            return (
                f"another node named {card.name} is known here already: {whose}, with the key "
                f"{other.identity}; {renamed}"
            )
        if (kind := _words(other).get(name)) is not None:
            return f"its name {card.name} is {kind} of {whose}; {renamed}"
        if (kind := words.get(normalised_word(other.name))) is not None:
            return (
                f"{kind} of {card.name} is {other.name}, the name of {whose}; let its "
                f"owner set another one, or {or_else}"
            )
    return None


class NodeIndex(Generic[AnyNode]):
    """Nodes by the words that stand for them: names first, then addresses and hosts of URLs."""

    def __init__(self, known: Iterable[AnyNode]) -> None:
        """Index these nodes, whose names differ."""
        self._by_name: dict[str, AnyNode] = {}
        self._by_host: defaultdict[str, dict[str, AnyNode]] = defaultdict(dict)
        for node in known:
            name, words = _words_of_card(node.name, node.address, node.url)
            self._by_name[name] = node
            for word in words:
                self._by_host[word][node.identity] = node

    def find(self, word: str) -> AnyNode | None:
        """Return the node that a word stands for; None if there is none, or several share it."""
        if (named := self._by_name.get(normalised_word(word))) is not None:
            return named
        hosts = self._nodes_with_word(word)
        return hosts[0] if len(hosts) == 1 else None

    def nodes_sharing(self, word: str) -> list[AnyNode]:
        """Return the nodes that share a word, because of which it stands for none of them."""
        if normalised_word(word) in self._by_name:
            return []
        hosts = self._nodes_with_word(word)
        return hosts if len(hosts) > 1 else []

    def _nodes_with_word(self, word: str) -> list[AnyNode]:
        return list(self._by_host.get(normalised_word(word), {}).values())


@lru_cache(maxsize=CARDS_READ)
def _words_of_card(name: str, address: str, url: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the name of a card as it is compared, and the other words that stand for its node."""
    port_too = (url or "").partition("://")[2].lower()
    words = (normalised_word(address), normalised_word(host_of(url) or ""), port_too)
    return normalised_word(name), tuple(filter(None, words))


def _words(card: Described) -> dict[str, str]:
    """Return the words that a card uses beside its name, each with what it is."""
    return {normalised_word(word): kind for word, kind in _hosts(card) if word}


def _hosts(card: Described) -> Iterator[tuple[str, str]]:
    for context, address in offered_contexts(card.attributes).items():
        yield address, f"the address in the context {context}"
    yield host_of(card.url) or "", "the host of the URL"
    yield card.address, "the address"
