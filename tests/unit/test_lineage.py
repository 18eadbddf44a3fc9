"""Lineages: chains of keys, whose links only the holders of both keys can make."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.model import times
from node.model.errors import Conflict, HostError, NotAuthenticated
from node.trust.key_files import KeyFile
from node.trust.keys import NodeKey
from node.trust.lineage import (
    HEADER,
    OVERLAP,
    SUCCESSIONS_MAX,
    InvalidLineageError,
    Lineage,
    read_lineage,
)
from node.trust.signatures import Asked, check_answer, sign_answer
from node.trust.statements import (
    InvalidStatementError,
    StatementKind,
    read_statement,
    sign_statement,
)

NOW = 1_800_000_000 * times.SECOND
FIRST = NodeKey.generate()
SECOND = FIRST.succeeded_by(NodeKey.generate(), NOW)
THIRD = SECOND.succeeded_by(NodeKey.generate(), NOW + times.DAY)
NONCE = "a" * 16
ASKED = Asked("GET", "/v1/nodes/self")


def test_a_lineage_is_read_as_it_was_written() -> None:
    """A lineage leads from the identity to the last key, and every key is named in turn."""
    lineage = read_lineage(str(THIRD.lineage))
    assert lineage == THIRD.lineage
    assert lineage.keys == (FIRST.public_text, SECOND.public_text, THIRD.public_text)
    assert THIRD.identity == lineage.identity == FIRST.identity


@settings(deadline=None)
@given(st.data())
def test_no_changed_lineage_is_read(data: st.DataObject) -> None:
    """A lineage with any one character changed is refused."""
    text = str(THIRD.lineage)
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("Aaz09-_. ").filter(lambda it: it != text[place]))
    with pytest.raises(InvalidLineageError):
        read_lineage(text[:place] + other + text[place + 1 :])


def test_both_keys_have_to_sign() -> None:
    """A succession that the new key has not signed is refused: no key is taken for another's."""
    thief, victim = NodeKey.generate(), NodeKey.generate()
    genuine = str(thief.succeeded_by(NodeKey.generate(), NOW).lineage)
    stolen = genuine.split(".")
    stolen[1] = victim.public_text.removeprefix("ed25519:")
    with pytest.raises(InvalidLineageError):
        read_lineage(".".join(stolen))


def test_a_replaced_key_counts_for_a_day() -> None:
    """A replaced key counts for the overlap after it was replaced, and the last one always."""
    lineage = THIRD.lineage
    assert lineage.counts(FIRST.public_text, NOW + OVERLAP - 1)
    assert not lineage.counts(FIRST.public_text, NOW + OVERLAP)
    assert lineage.counts(SECOND.public_text, NOW + OVERLAP)
    assert lineage.counts(THIRD.public_text, NOW + 1000 * OVERLAP)
    assert not lineage.counts(NodeKey.generate().public_text, NOW)


def test_a_key_that_was_dated_by_a_clock_ahead_counts_for_a_day_after_it_was_heard_of() -> None:
    """A replaced key is good for no longer than a day, whatever the clock of its node said."""
    lineage = FIRST.succeeded_by(NodeKey.generate(), NOW + 40 * times.DAY).lineage
    key = FIRST.public_text
    assert lineage.counts(key, NOW + OVERLAP - 1, [NOW])
    assert not lineage.counts(key, NOW + OVERLAP, [NOW])
    assert lineage.counts(key, NOW + OVERLAP)


def test_only_a_longer_chain_continues() -> None:
    """A lineage continues each of its own earlier states, and no other chain from the same key."""
    fork = FIRST.succeeded_by(NodeKey.generate(), NOW)
    assert THIRD.lineage.continues(FIRST.lineage)
    assert not FIRST.lineage.continues(THIRD.lineage)
    assert not THIRD.lineage.continues(fork.lineage)


def test_a_statement_tells_whose_it_is_after_a_succession() -> None:
    """A statement by a later key is the node's, and can be checked without asking anybody."""
    statement = read_statement(
        sign_statement(THIRD, StatementKind.PART, {"a": 1}), StatementKind.PART
    )
    assert (statement.identity, statement.key) == (FIRST.identity, THIRD.public_text)


def test_a_statement_needs_its_own_lineage() -> None:
    """A statement with the lineage of another key is refused."""
    stranger = NodeKey.generate()
    text = sign_statement(THIRD, StatementKind.PART, {"a": 1})
    header = {"alg": "Ed25519", "kid": stranger.public_text, "lineage": str(THIRD.lineage)}
    header["typ"] = StatementKind.PART.value
    encoded = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    signed = f"{base64.urlsafe_b64encode(encoded).decode().rstrip('=')}.{text.split('.')[1]}"
    signature = base64.urlsafe_b64encode(stranger.sign(signed.encode())).decode().rstrip("=")
    with pytest.raises(InvalidStatementError):
        read_statement(f"{signed}.{signature}", StatementKind.PART)


def _lineage(headers: dict[str, str]) -> Lineage:
    """Return the lineage of a checked answer."""
    return check_answer(FIRST.identity, NONCE, 200, headers, b"", asked=ASKED, binds=False)


def test_an_answer_is_the_nodes_after_a_succession() -> None:
    """An answer by a later key is the node's if it brings its lineage, and nobody's without it."""
    headers = sign_answer(THIRD, 200, b"", created=NOW // times.SECOND, nonce=NONCE)
    assert (
        check_answer(FIRST.identity, NONCE, 200, headers, b"", asked=ASKED, binds=False)
        == THIRD.lineage
    )
    without = {name: value for name, value in headers.items() if name != HEADER}
    with pytest.raises(NotAuthenticated, match="is signed with the key"):
        _lineage(without)
    with pytest.raises(NotAuthenticated, match="lineage of another key"):
        check_answer(
            FIRST.identity,
            NONCE,
            200,
            {**headers, HEADER: str(SECOND.lineage)},
            b"",
            asked=ASKED,
            binds=False,
        )


def test_a_key_file_keeps_the_lineage(tmp_path: Path) -> None:
    """A replaced key is found again in its file, by other processes, too."""
    file, beside = KeyFile(tmp_path / "node.pem"), KeyFile(tmp_path / "node.pem")
    first = beside.current.public_text
    replaced = file.replace(NOW)
    assert beside.current.lineage == replaced.lineage
    assert beside.current.identity == first != beside.current.public_text
    assert NodeKey.load_or_create(tmp_path / "node.pem").lineage == replaced.lineage


def test_a_key_file_with_a_foreign_lineage_is_damaged(tmp_path: Path) -> None:
    """A key file whose lineage leads to another key is refused."""
    path = tmp_path / "node.pem"
    KeyFile(path).replace(NOW)
    path.write_bytes(path.read_bytes().partition(b"\n")[0] + b"\n" + NodeKey.generate().pem)
    with pytest.raises(HostError, match="does not contain an Ed25519 key"):
        NodeKey.load_or_create(path)


def test_chains_end(tmp_path: Path) -> None:
    """A key is replaced at most a dozen times: every request carries the chain."""
    file = KeyFile(tmp_path / "node.pem")
    for number in range(SUCCESSIONS_MAX):
        file.replace(NOW + number * times.DAY)
    longest = file.current
    assert read_lineage(str(longest.lineage)) == longest.lineage
    text = sign_statement(longest, StatementKind.PART, {})
    assert read_statement(text, StatementKind.PART).identity == longest.identity
    with pytest.raises(Conflict, match="was replaced 12 times"):
        file.replace(NOW + 400 * times.DAY)
    with pytest.raises(InvalidLineageError):
        longest.succeeded_by(NodeKey.generate(), NOW)


def test_what_is_no_lineage() -> None:
    """A lineage is nothing but an identity and successions."""
    for text in ("", "ed25519:x", "x" * 5000, f"{FIRST.identity} x", f"{FIRST.identity} "):
        with pytest.raises(InvalidLineageError):
            read_lineage(text)
    assert read_lineage(FIRST.identity) == Lineage(FIRST.identity)
