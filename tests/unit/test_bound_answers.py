"""Answers that are signed as answers to one request, and the older form of version 0.3."""

from __future__ import annotations

import secrets

import pytest

from node.model.errors import NotAuthenticated
from node.trust.signatures import (
    WANTS_BOUND,
    Asked,
    check_answer,
    new_nonce,
    sign_answer,
    wants_bound_answer,
)
from tests.support.signing import ANNA, BODY, NOW_S

ASKED = Asked.of("POST", "https://b.example/v1/participant/proposals?x=1")
NONCE = new_nonce(secrets.token_bytes)


def given(asked: Asked | None) -> dict[str, str]:
    """Return the headers of an answer to this request."""
    return sign_answer(ANNA, 200, BODY, created=NOW_S, nonce=NONCE, asked=asked)


def check(headers: dict[str, str], *, binds: bool) -> None:
    """Take an answer as the one to the request."""
    check_answer(ANNA.identity, NONCE, 200, headers, BODY, asked=ASKED, binds=binds)


def test_an_answer_is_one_to_its_request() -> None:
    """An answer to the request is taken, whatever is known of the version of the node."""
    for binds in (True, False):
        check(given(ASKED), binds=binds)


@pytest.mark.parametrize(
    "other",
    [
        Asked("GET", ASKED.target),
        Asked("POST", "/v1/nodes/self?x=1"),
        Asked("POST", "/v1/participant/proposals"),
        Asked("POST", "/v1/participant/proposals?x=2"),
    ],
)
def test_an_answer_to_another_request_is_none(other: Asked) -> None:
    """An answer with the right nonce to another method, path or query is refused."""
    for binds in (True, False):
        with pytest.raises(NotAuthenticated, match="another method, path or query"):
            check(given(other), binds=binds)


def test_the_older_form_is_taken_from_older_nodes_only() -> None:
    """An answer that is not bound is refused from a node whose card says that it binds answers."""
    check(given(None), binds=False)
    with pytest.raises(NotAuthenticated, match="covers the wrong components"):
        check(given(None), binds=True)


def test_who_wants_it_says_so() -> None:
    """A request asks for a bound answer by one header of exactly one value."""
    assert wants_bound_answer(WANTS_BOUND)
    assert not wants_bound_answer({})
    assert not wants_bound_answer({name: value.lower()[:-1] for name, value in WANTS_BOUND.items()})
