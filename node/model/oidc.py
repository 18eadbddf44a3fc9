"""The users that an OpenID Connect issuer vouches for: their role and label, by claims. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from node.model import times
from node.model.errors import NotAuthenticated
from node.model.loopback import is_loopback
from node.model.principals import FOLLOWER, LABEL, Principal, PrincipalKind, Role
from node.model.unique_json import RepeatedMember, parse_json
from node.model.urls import split_url

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "Ed25519")
"""The signature algorithms that may be allowed: none with a shared secret, and not ``none``."""

LEEWAY_S = 30
"""Maximum difference between the clocks of issuer and node, in seconds."""

KEY_MAX = 255

RESERVED = frozenset({"owner", FOLLOWER})
"""Labels of tokens that a node makes by itself: whose label one has, their tasks one has."""


@dataclass(frozen=True)
class OidcTerms:
    """The roles that the owner of the node grants to users of an issuer.

    ``roles`` has the role by the value of ``role_claim``, whose steps into objects are separated by
    dots; of several values the highest role counts. ``label_claim`` has the label. A token may
    live for ``life_max`` (µs), because it cannot be revoked.
    """

    issuer: str
    roles: Mapping[str, Role]
    role_claim: str
    label_claim: str
    life_max: int


_OF_ID_TOKENS = ("nonce", "at_hash", "c_hash")
"""Claims that an ID token has, which tells a client who has logged in, and gives access nowhere."""


def fault_of_token(token: str) -> str | None:
    """Return why a token is read differently by different programs; None if it is not.

    Of two members of one name some take the first and others the last: the audience that an issuer
    has checked would not be the one that counts here.
    """
    for part in token.split(".")[:2]:
        try:
            text = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
            parse_json(text)
        except RepeatedMember as error:
            return f"it has two members {error.name!r}"
        except (ValueError, RecursionError):
            return "its parts are not JSON"
    return None


def fault_of_claims(claims: Mapping[str, Any], typ: str) -> str | None:
    """Return why a token does not give access; None if it does.

    One of the type ``at+jwt`` does by its type (RFC 9068); of others an ID token is known by what
    only it has.
    """
    if typ.lower() not in {"jwt", ""}:
        return None
    marks = [name for name in _OF_ID_TOKENS if name in claims]
    if marks or claims.get("typ") == "ID":
        mark = marks[0] if marks else "typ"
        return f"it is an ID token (it has the claim {mark!r}); send the access token instead"
    return None


def principal_of(claims: Mapping[str, Any], terms: OidcTerms) -> Principal:
    """Return the user with these claims, whose signature and times have been checked.

    They may have no role.

    :raises NotAuthenticated: the token lives too long, or names nobody who can be recorded.
    """
    issued_at, expires_at = claims["iat"], claims["exp"]
    if not 0 < (expires_at - issued_at) * times.SECOND <= terms.life_max:
        msg = (
            f"the token of {terms.issuer} is not valid for at most "
            f"{times.duration_text(terms.life_max)}, and cannot be revoked; have the issuer "
            "make shorter ones, or raise PARLEY_OIDC_LIFE_MAX"
        )
        raise NotAuthenticated(msg)
    label = _claim(claims, terms.label_claim)
    if not isinstance(label, str) or LABEL.fullmatch(label) is None:
        msg = (
            f"the claim {terms.label_claim!r} of the token has no label: 1 to 63 letters, digits, "
            "'.', '_', '@' and '-'; the owner names another claim with PARLEY_OIDC_LABEL_CLAIM"
        )
        raise NotAuthenticated(msg)
    if label.lower() in RESERVED:
        msg = (
            f"the label {label!r} is the node's own, and none of a user of {terms.issuer}; the "
            "owner names another claim with PARLEY_OIDC_LABEL_CLAIM"
        )
        raise NotAuthenticated(msg)
    until = int(expires_at + LEEWAY_S) * times.SECOND
    key = str(claims["sub"])[:KEY_MAX]
    if not key.isprintable():  # neither the database nor the audit can have it
        msg = f"the claim 'sub' of the token has characters that cannot be printed: {key!a}"
        raise NotAuthenticated(msg)
    return Principal(PrincipalKind.TOKEN, label, _role(claims, terms), key, until)


def _role(claims: Mapping[str, Any], terms: OidcTerms) -> Role | None:
    value = _claim(claims, terms.role_claim)
    words = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
    granted = {terms.roles[word] for word in words if isinstance(word, str) and word in terms.roles}
    return next((role for role in reversed(Role) if role in granted), None)


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return a claim by its name, or by the steps into objects; None if there is none."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def fault_of_issuer(url: str) -> str | None:
    """Return why keys may not come from a URL; None if they may. Only this host needs no TLS."""
    parts = split_url(url)
    if parts is None:
        return "is not a URL"
    if parts.scheme == "https":
        return None
    if parts.scheme == "http" and is_loopback(parts.hostname or ""):
        return None
    return "is not an https URL"


def is_at_issuer(url: str, issuer: str) -> bool:
    """Return whether a URL is at the place that the owner has named: scheme, host, and port."""
    there, own = split_url(url), split_url(issuer)
    if there is None or own is None:
        return False
    return (there.scheme, there.hostname, there.port) == (own.scheme, own.hostname, own.port)


def is_jwt(token: str) -> bool:
    """Return whether a token has the form of a signed JWT, which no token of a node has."""
    return token.startswith("eyJ") and token.count(".") == 2  # noqa: PLR2004 - header, claims, signature
