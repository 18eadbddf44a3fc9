"""Canonical JSON and signed statements: the vectors of RFC 8785, another library, and changes."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import OKPKey

from node.model.canonical import canonical, digest
from node.trust.identities import public_of
from node.trust.keys import NodeKey
from node.trust.statements import (
    InvalidStatementError,
    StatementKind,
    digests,
    read_statement,
    sign_statement,
)

PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY = NodeKey(PRIVATE)

TEXT = st.text(st.characters(codec="utf-8"))
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_numbers_are_written_as_in_the_vectors_of_the_rfc(bits: str, text: str) -> None:
    """The canonical form of a number is that of RFC 8785, appendix B."""
    [number] = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical(number) == text.encode()


def test_text_and_order_are_as_in_the_rfc() -> None:
    """Escapes are the shortest ones, and members are in the order of UTF-16."""
    value = {
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis",
        "literals": [None, True, False],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
    }
    assert canonical(value).decode() == (
        '{"\\r":"Carriage Return","1":"One","literals":[null,true,false],'
        '"string":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/","\u0080":"Control",'
        '"\u00f6":"Latin Small Letter O With Diaeresis","\u20ac":"Euro Sign",'
        '"\U0001f600":"Emoji: Grinning Face","\ufb33":"Hebrew Letter Dalet With Dagesh"}'
    )


@given(VALUES)
def test_the_canonical_form_is_the_value(value: Any) -> None:
    """Parsing the canonical form gives the value, whose form is the same again."""
    written = canonical(value)
    read = json.loads(written, parse_int=lambda digits: int(float(digits)))
    assert read == value
    assert canonical(read) == written


@pytest.mark.parametrize("value", [float("nan"), 10**400, "\ud800", {1: 2}, {"a": b"x"}])
def test_what_is_no_json_has_no_canonical_form(value: Any) -> None:
    """Values that other programs cannot read the same way are refused."""
    with pytest.raises(ValueError, match=r"JSON|canonical|text|surrogates"):
        canonical(value)


def test_a_library_reads_statements_and_writes_them() -> None:
    """A statement is a compact JWS that joserfc verifies, and signs alike."""
    claims = {"run": "r", "sha256": digests({"result": {"a": 1.0}})}
    text = sign_statement(KEY, StatementKind.PART, claims)
    key = OKPKey.import_key(
        {
            "kty": "OKP",
            "crv": "Ed25519",
            "x": base64.urlsafe_b64encode(public_of(KEY.identity)).decode().rstrip("="),
            "d": base64.urlsafe_b64encode(PRIVATE.private_bytes_raw()).decode().rstrip("="),
        }
    )
    read = jws.deserialize_compact(text, key, algorithms=["Ed25519"])
    assert json.loads(read.payload) == claims
    header = {"alg": "Ed25519", "kid": KEY.identity, "typ": StatementKind.PART.value}
    assert jws.serialize_compact(header, canonical(claims), key, algorithms=["Ed25519"]) == text


def test_a_statement_says_who_signed_what() -> None:
    """A statement that is read has its signer, its claims, and the names of changed values."""
    values = {"result": {"a": 1}, "output": "x"}
    text = sign_statement(KEY, StatementKind.PART, {"run": "r", "sha256": digests(values)})
    statement = read_statement(text, StatementKind.PART)
    assert (statement.identity, statement.claims["run"]) == (KEY.identity, "r")
    assert statement.changed_names(values) == []
    assert statement.changed_names({**values, "output": "y"}) == ["output"]
    assert statement.changed_names({"output": "x"}) == ["result"]
    assert statement.changed_names({**values, "more": None}) == ["more"]
    assert statement.changed_names({**values, "result": float("nan")}) == ["result"]


@given(st.data())
def test_no_character_of_a_statement_can_be_changed(data: st.DataObject) -> None:
    """Every changed, added, or removed character makes a statement invalid."""
    text = sign_statement(KEY, StatementKind.PART, {"sha256": {"a": digest(1)}})
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.text(max_size=2))
    changed = text[:place] + other + text[place + 1 :]
    if changed != text:
        with pytest.raises(InvalidStatementError):
            read_statement(changed, StatementKind.PART)


def test_a_statement_of_one_kind_is_none_of_another() -> None:
    """The kind is signed: a part's statement is not taken for a bundle's."""
    text = sign_statement(KEY, StatementKind.PART, {})
    with pytest.raises(InvalidStatementError, match="not that of a parley-bundle"):
        read_statement(text, StatementKind.BUNDLE)


@given(st.text(max_size=200) | st.from_regex(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{86}"))
def test_anything_else_is_refused(text: str) -> None:
    """Text that is no statement is refused with a reason, and nothing else is raised."""
    with pytest.raises(InvalidStatementError):
        read_statement(text, StatementKind.PART)


def test_a_value_without_a_digest_was_not_signed() -> None:
    """A signer cannot leave a digest empty, so that any value fits that has none."""
    text = sign_statement(KEY, StatementKind.PART, {"sha256": {"output": None}})
    statement = read_statement(text, StatementKind.PART)
    for output in ("\ud800", float("nan"), None, ""):
        assert statement.changed_names({"output": output}) == ["output"]
