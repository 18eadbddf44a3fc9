"""Users of an OpenID Connect issuer: which role, which label, and which tokens are too long."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from node.model import times
from node.model.errors import NotAuthenticated
from node.model.oidc import LEEWAY_S, OidcTerms, fault_of_issuer, is_jwt, principal_of
from node.model.principals import Principal, PrincipalKind, Role
from node.runtime.settings import Settings

ISSUER = "https://id.example"
ROLES = {"noc": Role.OPERATE, "staff": Role.RUN, "admins": Role.OWN}
CLAIMS: dict[str, Any] = {"sub": "u1", "name": "alice", "iat": 1000, "exp": 1600}


def terms(role_claim: str = "groups", label_claim: str = "name") -> OidcTerms:
    """Return terms with these claims."""
    return OidcTerms(ISSUER, ROLES, role_claim, label_claim, times.HOUR)


@pytest.mark.parametrize(
    ("claims", "role_claim", "role"),
    [
        ({}, "groups", None),
        ({"groups": []}, "groups", None),
        ({"groups": ["guests"]}, "groups", None),
        ({"groups": ["staff", "noc", "guests"]}, "groups", Role.OPERATE),
        ({"groups": "admins staff"}, "groups", Role.OWN),
        ({"groups": [1, None, ["admins"], "staff"]}, "groups", Role.RUN),
        ({"groups": {"admins": True}}, "groups", None),
        ({"realm_access": {"roles": ["noc"]}}, "realm_access.roles", Role.OPERATE),
        ({"realm_access": ["noc"]}, "realm_access.roles", None),
        ({"https://x.example/roles": ["noc"]}, "https://x.example/roles", Role.OPERATE),
    ],
)
def test_the_highest_role_of_the_claim_counts(
    claims: dict[str, Any], role_claim: str, role: Role | None
) -> None:
    """Values that the owner has not mapped give nothing, whatever their form."""
    user = principal_of({**CLAIMS, **claims}, terms(role_claim))
    until = (1600 + LEEWAY_S) * times.SECOND
    assert user == Principal(PrincipalKind.TOKEN, "alice", role, "u1", until)


@pytest.mark.parametrize("label", [None, "", "a b", "-a", "x" * 64, 7, ["alice"], "al\nice"])
def test_a_label_that_is_none_is_refused(label: object) -> None:
    """A claim that cannot be a label makes nobody, and the reason names the setting."""
    with pytest.raises(NotAuthenticated, match="PARLEY_OIDC_LABEL_CLAIM"):
        principal_of({**CLAIMS, "name": label}, terms())


@pytest.mark.parametrize("subject", ["a\x00b", "\ud800", "a\nb"])
def test_a_subject_that_cannot_be_stored_is_refused(subject: str) -> None:
    """A user whom no row of the audit could name changes nothing."""
    with pytest.raises(NotAuthenticated, match="'sub'"):
        principal_of({**CLAIMS, "sub": subject}, terms())


@pytest.mark.parametrize("exp", [1000, 999, 1000 + 3601, 1e300, float("nan"), float("inf")])
def test_a_token_that_lives_too_long_is_refused(exp: float) -> None:
    """Only a life of more than nothing and at most the owner's maximum is accepted."""
    with pytest.raises(NotAuthenticated, match="PARLEY_OIDC_LIFE_MAX"):
        principal_of({**CLAIMS, "exp": exp}, terms())


def test_tokens_of_this_node_are_no_jwts() -> None:
    """The two kinds of tokens are told apart by their form."""
    assert is_jwt("eyJhbGciOiJub25lIn0.e30.")
    for token in ("parley_" + "A" * 43, "", "eyJ", "eyJ.a", "eyJ.a.b.c", "a.b.c"):
        assert not is_jwt(token)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://id.example/realm", True),
        ("http://127.0.0.1:8080", True),
        ("http://localhost", True),
        ("http://id.example", False),
        ("ftp://id.example", False),
        ("file:///etc/passwd", False),
        ("https://", False),
        ("id.example", False),
    ],
)
def test_keys_come_over_tls_only(url: str, *, allowed: bool) -> None:
    """An issuer needs an https URL, unless it is on this host."""
    assert (fault_of_issuer(url) is None) is allowed


@pytest.mark.parametrize(
    "changed",
    [
        {"oidc_issuer": "http://id.example"},
        {"oidc_audience": None},
        {"oidc_roles": {}},
        {"oidc_roles": {"noc": "root"}},
        {"oidc_algorithms": "none"},
        {"oidc_algorithms": "RS256 HS256"},
        {"oidc_algorithms": " "},
        {"oidc_life_max": "P2D"},
    ],
)
def test_settings_that_would_let_anybody_in_are_refused(changed: dict[str, Any]) -> None:
    """An issuer without audience or roles, a weak algorithm, and a long life are no settings."""
    whole: dict[str, Any] = {
        "oidc_issuer": ISSUER,
        "oidc_audience": "parley",
        "oidc_roles": {"noc": "own"},
    }
    Settings(**whole)
    with pytest.raises(ValidationError):
        Settings(**{**whole, **changed})
