"""Signed requests between nodes: accepted requests, and every reason to refuse one."""

from __future__ import annotations

import base64
import secrets
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from node.model.times import SECOND
from node.trust.identities import fingerprint
from node.trust.signatures import COMPONENTS, Verifier, content_digest, new_nonce, sign
from tests.support.signing import (
    ANNA,
    BERT,
    BODY,
    CARL,
    NOW,
    NOW_S,
    TARGET,
    Request,
    bert,
    edited,
    reason,
    request,
    verify,
    with_header,
)

patient = settings(deadline=None)


# What is accepted


@pytest.mark.parametrize("target", ["/", "/v1/x", "/v1/x?a=1&b=%20?", "/%7Ea//b/../c", "/a;b=c,d"])
@pytest.mark.parametrize("body", [b"", BODY, bytes(range(256)) * 40])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_signed_requests_are_accepted(method: str, target: str, body: bytes) -> None:
    """The receiver of any signed request learns the identity of the signer."""
    received = request(method=method, target=target, body=body)
    assert verify(bert(), received) == ANNA.identity


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://b.example", "/"),
        ("https://b.example/", "/"),
        ("http://[2001:db8::1]:8080/x", "/x"),
        ("http://b.example?a=1", "/?a=1"),
        ("http://b.example/x?", "/x"),
    ],
)
def test_only_path_and_query_of_the_url_are_signed(url: str, target: str) -> None:
    """Scheme, name and port may differ at the receiver, and an empty path is the root."""
    nonce = new_nonce(secrets.token_bytes)
    headers = sign(ANNA, "GET", url, b"", created=NOW_S, nonce=nonce, to=BERT.identity)
    assert verify(bert(), Request("GET", target, b"", headers)) == ANNA.identity


def test_headers_of_any_case_are_found() -> None:
    """Header names are found in any case and among other headers."""
    received = request()
    headers = {name.upper(): value for name, value in received.headers.items()}
    assert verify(bert(), replace(received, headers={"HOST": "b", **headers})) == ANNA.identity


@pytest.mark.parametrize(
    ("created", "now"),
    [(NOW_S, NOW + 60 * SECOND), (NOW_S + 30, NOW), (NOW_S, NOW + 1)],
)
def test_age_and_skew_are_tolerated_to_the_end(created: int, now: int) -> None:
    """A signature is valid for a minute, and for a clock that is half a minute ahead."""
    assert verify(bert(), request(created=created), now) == ANNA.identity


# Each way to be refused


def test_unsigned() -> None:
    """A request without a signature is refused with what is missing."""
    assert "is not signed" in reason(bert(), Request())
    for name in ("Signature", "Signature-Input"):
        assert "is not signed" in reason(bert(), with_header(request(), name, None))


@pytest.mark.parametrize("name", ["Content-Digest", "Parley-To"])
def test_missing_header(name: str) -> None:
    """A signed request without one of the covered headers is refused with its name."""
    assert f"header {name.lower()} is missing" in reason(bert(), with_header(request(), name, None))


@pytest.mark.parametrize("name", ["Content-Digest", "Parley-To", "Signature", "Signature-Input"])
def test_repeated_header(name: str) -> None:
    """Two headers of the same name are refused, because other code might read the other one."""
    received = request()
    headers = CIMultiDict(received.headers)
    headers.add(name, received.headers[name])
    assert f"{name.lower()} is given twice" in reason(bert(), replace(received, headers=headers))


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("Signature-Input", "parley=", "sig1=", 'labelled "parley"'),
        ("Signature-Input", "parley=", " parley=", 'labelled "parley"'),
        ("Signature-Input", "parley=", 'other=("@method"), parley=', 'labelled "parley"'),
        ("Signature-Input", ";created", ";;created", 'labelled "parley"'),
        ("Signature-Input", '"@query"', '"@query";x', 'labelled "parley"'),
        ("Signature-Input", ";created=1", ";created=-1", 'labelled "parley"'),
        ("Signature-Input", ";created=1", ";created=", "created is not a time"),
        ("Signature-Input", ";created=1", ";created=01", "created is not a time"),
        ("Signature-Input", f"={NOW_S}", f'="{NOW_S}"', "created is not a time"),
        ("Signature-Input", f";created={NOW_S}", "", "not exactly created, nonce, keyid, alg"),
        ("Signature-Input", ";nonce", ";tag", "not exactly created, nonce, keyid, alg"),
        ("Signature-Input", ";created", ";expires=1;created", "not exactly created, nonce"),
        ("Signature-Input", ";created", ";created=1;created", "not exactly created, nonce"),
        ("Signature-Input", ';nonce="', ';nonce=1;nonce="', "not exactly created, nonce"),
        ("Signature-Input", ';nonce="', ';nonce="!', "nonce not 16 to 32"),
        ("Signature-Input", ';nonce="', ';nonce=";alg=', "nonce not 16 to 32"),
        ("Signature-Input", 'alg="ed25519"', "alg=25519", "must be strings"),
        ("Signature-Input", "ed25519:", "", "keyid is not a node's identity"),
        ("Parley-To", "ed25519:", "", "Parley-To is not a node's identity"),
        ("Signature", "parley=", "sig1=", "not consist of 64 bytes"),
        ("Signature", "==:", ":", "not consist of 64 bytes"),
        ("Signature", "parley=:", "parley=:AAAA", "not consist of 64 bytes"),
    ],
)
def test_malformed(name: str, old: str, new: str, words: str) -> None:
    """Headers that are not exactly of our form are refused with what is wrong."""
    detail = reason(bert(), edited(request(), name, old, new))
    assert "malformed" in detail
    assert words in detail


@pytest.mark.parametrize("algorithm", ["rsa-v1_5-sha256", "hmac-sha256", "ED25519", "", "none"])
def test_unknown_algorithm(algorithm: str) -> None:
    """Another algorithm than Ed25519 is refused as such."""
    received = edited(request(), "Signature-Input", 'alg="ed25519"', f'alg="{algorithm}"')
    assert "unknown algorithm" in reason(bert(), received)


@pytest.mark.parametrize(
    "components",
    [
        "()",
        '("@method")',
        '("@path" "@method" "@query" "content-digest" "parley-to")',
        '("@method" "@path" "@query" "content-digest")',
        '("@method" "@path" "@query" "content-digest" "parley-to" "date")',
        '("@method" "@path" "@query" "content-digest" "parley-to" "parley-to")',
    ],
)
def test_wrong_components(components: str) -> None:
    """Fewer, more, repeated or reordered components are refused with the required list."""
    received = edited(request(), "Signature-Input", COMPONENTS, components)
    assert f"wrong components; this node requires exactly {COMPONENTS}" in reason(bert(), received)


def test_digest_mismatch() -> None:
    """A body that differs from its digest is refused as such."""
    received = request()
    assert "differs from its Content-Digest" in reason(bert(), replace(received, body=BODY + b" "))
    other = base64.b64encode(bytes(32)).decode()
    changed = with_header(received, "Content-Digest", f"sha-256=:{other}:")
    assert "wrong signature" in reason(bert(), changed)
    for value in (f"sha-512=:{other}:", "", "garbage", "sha-256=:\udcff:"):
        changed = with_header(received, "Content-Digest", value)
        assert "Content-Digest is not one SHA-256" in reason(bert(), changed)


def test_wrong_signature() -> None:
    """A signature of another request is refused, even if body and digest were changed together."""
    received = request()
    changed = with_header(replace(received, body=b"x"), "Content-Digest", content_digest(b"x"))
    assert "wrong signature" in reason(bert(), changed)
    assert fingerprint(ANNA.identity) in reason(bert(), changed)
    forged = edited(request(key=CARL), "Signature-Input", CARL.identity, ANNA.identity)
    assert "wrong signature" in reason(bert(), forged)


def test_unknown_key() -> None:
    """An unknown key is refused with its fingerprint and the command that adds it."""
    detail = reason(bert(), request(key=CARL))
    assert fingerprint(CARL.identity) in detail
    assert "parley node add URL" in detail


def test_stranger_costs_no_hashing() -> None:
    """An unknown key is refused before digest and signature are checked."""
    received = with_header(
        replace(request(key=CARL), body=b"other"), "Content-Digest", content_digest(b"")
    )
    assert "does not know" in reason(bert(), received)


def test_stale() -> None:
    """A request that is too old is refused with both clocks."""
    detail = reason(bert(), request(), NOW + 60 * SECOND + 1)
    assert "stale" in detail
    assert "signed at 2027-01-01T00:00:00Z" in detail
    assert "clock says 2027-01-01T00:01:00.000001Z" in detail


def test_future() -> None:
    """A request from a clock too far ahead is refused with both clocks."""
    detail = reason(bert(), request(created=NOW_S + 91))
    assert "from the future" in detail
    assert "signed at 2027-01-01T00:01:31Z" in detail
    assert "clock says 2027-01-01T00:00:00Z" in detail


def test_signed_before_the_start() -> None:
    """A request signed before the node started is refused, and accepted when signed again."""
    verifier = bert(started=NOW + SECOND // 2)
    now = NOW + SECOND
    assert "before this node started" in reason(verifier, request(created=NOW_S), now)
    assert verify(verifier, request(created=NOW_S + 1), now) == ANNA.identity


def test_meant_for_another_node() -> None:
    """A request to Carl cannot be replayed to Bert, and the refusal names both."""
    detail = reason(bert(), request(to=CARL))
    assert fingerprint(CARL.identity) in detail
    assert fingerprint(BERT.identity) in detail


def test_replayed() -> None:
    """A request is accepted only once while its signature is fresh."""
    verifier = bert()
    received = request(created=NOW_S + 30)
    assert verify(verifier, received) == ANNA.identity
    for second in range(91):
        assert "received before" in reason(verifier, received, NOW + second * SECOND)
    assert "stale" in reason(verifier, received, NOW + 91 * SECOND)


def test_same_nonce_of_two_peers() -> None:
    """Nonces of one peer do not affect another."""
    verifier = bert(known=lambda _: True)
    nonce = new_nonce(secrets.token_bytes)
    for key in (ANNA, CARL):
        headers = sign(
            key, "POST", "http://b" + TARGET, BODY, created=NOW_S, nonce=nonce, to=BERT.identity
        )
        assert verify(verifier, Request(headers=headers)) == key.identity


def test_nonce_is_used_up_by_verified_requests_only() -> None:
    """A request with an invalid signature does not use up the nonce of a valid one."""
    verifier = bert()
    received = request()
    reason(verifier, replace(received, body=b"x"))
    reason(verifier, replace(received, target="/other"))
    assert verify(verifier, received) == ANNA.identity


def test_a_flood_is_bounded() -> None:
    """A peer with too many requests is refused with the reason, and another is accepted."""
    verifier = Verifier(BERT.identity, lambda: 0, lambda key, _: key, nonces_per_signer=3)
    for _ in range(3):
        verify(verifier, request())
    assert "more than 3 in a short time" in reason(verifier, request())
    assert verify(verifier, request(key=CARL)) == CARL.identity
    later = NOW + 90 * SECOND
    assert verify(verifier, request(created=NOW_S + 90), later) == ANNA.identity


def test_clock_set_back_opens_no_door() -> None:
    """A request forgotten for its age stays refused if this host's clock is set back."""
    verifier = bert()
    old = request()
    verify(verifier, old)
    for minutes in (2, 4, 6):
        verify(verifier, request(created=NOW_S + minutes * 60), NOW + minutes * 60 * SECOND)
    assert "has forgotten" in reason(verifier, old, NOW + SECOND)
    newer = request(created=NOW_S + 361)
    assert verify(verifier, newer, NOW + 361 * SECOND) == ANNA.identity


# Nothing that was changed passes, and nothing raises anything else


@patient
@given(st.data())
def test_any_changed_byte_is_refused(data: st.DataObject) -> None:
    """A request with one changed character in a signed part is refused."""
    received = request()
    parts = ["method", "target", "body", *received.headers]
    part = data.draw(st.sampled_from(parts))
    value = received.headers.get(part) or getattr(received, part)
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    place = data.draw(st.integers(0, len(text) - 1))
    character = data.draw(st.characters(max_codepoint=255).filter(lambda c: c != text[place]))
    changed = text[:place] + character + text[place + 1 :]
    if part in received.headers:
        altered = with_header(received, part, changed)
    elif part == "body":
        altered = replace(received, body=changed.encode("latin-1"))
    elif part == "method":
        altered = replace(received, method=changed)
    else:
        altered = replace(received, target=changed)
    assert reason(bert(known=lambda _: True), altered)


@patient
@given(st.data())
def test_any_spelling_of_the_signature_but_one_is_refused(data: st.DataObject) -> None:
    """A signed header with inserted or removed characters is refused, and so are unused bits."""
    received = request()
    name = data.draw(st.sampled_from(sorted(received.headers)))
    value = received.headers[name]
    place = data.draw(st.integers(0, len(value)))
    inserted = data.draw(st.text(st.characters(max_codepoint=255), max_size=3))
    cut = data.draw(st.integers(0, 3))
    changed = value[:place] + inserted + value[place + cut :]
    if changed != value:
        assert reason(bert(known=lambda _: True), with_header(received, name, changed))


def test_spare_bits_of_the_signature_are_refused() -> None:
    """Another base64 spelling of the same signature bytes is refused."""
    received = request()
    text = received.headers["Signature"]
    last = text[-4]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    other = alphabet[alphabet.index(last) + 1]
    respelt = with_header(received, "Signature", text[:-4] + other + "==:")
    assert "not consist of 64 bytes" in reason(bert(), respelt)


HEADER_TEXT = st.text() | st.text('parley=:;"()@ ,aA0+/-_') | st.from_regex(r"parley=\(.*\);.*")


@patient
@given(
    method=st.text() | st.just("POST"),
    target=st.text() | st.just(TARGET),
    body=st.binary(),
    names=st.lists(st.sampled_from(sorted(request().headers)) | st.text(), max_size=6),
    now=st.integers(-(10**18), 10**16),
    data=st.data(),
)
def test_garbage_raises_nothing_else(
    *, method: str, target: str, body: bytes, names: list[str], now: int, data: st.DataObject
) -> None:
    """Random headers are refused with a reason."""
    headers = {name: data.draw(HEADER_TEXT) for name in names}
    assert reason(bert(known=lambda _: True), Request(method, target, body, headers), now)


@patient
@given(data=st.data(), name=st.sampled_from(sorted(request().headers)))
def test_garbage_in_one_header_raises_nothing_else(data: st.DataObject, name: str) -> None:
    """An otherwise valid request with any text in one header is refused with a reason."""
    received = with_header(request(), name, data.draw(HEADER_TEXT))
    assert reason(bert(known=lambda _: True), received)


@pytest.mark.parametrize(
    ("method", "url", "nonce", "to"),
    [
        ("post", "http://b/", "n" * 22, BERT.identity),
        ("POST\n", "http://b/", "n" * 22, BERT.identity),
        ("POST", "/only/a/path", "n" * 22, BERT.identity),
        ("POST", "http://b/a b", "n" * 22, BERT.identity),
        ("POST", "http://b/a\nb", "n" * 22, BERT.identity),
        ("POST", "http://b/\u00e9", "n" * 22, BERT.identity),
        ("POST", "http://b/x#y", "n" * 22, BERT.identity),
        ("POST", "http://b/", "short", BERT.identity),
        ("POST", "http://b/", 'n"' * 11, BERT.identity),
        ("POST", "http://b/", "n" * 22, "bert"),
    ],
    ids=count(),
)
def test_nothing_unsound_is_signed(method: str, url: str, nonce: str, to: str) -> None:
    """A request that no receiver would accept is not signed."""
    with pytest.raises(ValueError, match="not"):
        sign(ANNA, method, url, b"", created=NOW_S, nonce=nonce, to=to)
