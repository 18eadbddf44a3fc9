"""Tokens of an OpenID Connect issuer: JWTs that it has signed for users of this node.

The keys of the issuer are found by its discovery document, and cached. They are fetched again after
an hour, and for a key that is unknown, but not more often than twice a minute, whoever asks.

This module needs the extra ``oidc``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import aiohttp
import orjson
import structlog
from joserfc import jwt
from joserfc.errors import BadSignatureError, InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from node.execution.ways_out import judging_session, rules_of_this_host
from node.model import times
from node.model.errors import NotAuthenticated, NotReady, ParleyError, reason_of
from node.model.oidc import (
    LEEWAY_S,
    OidcTerms,
    fault_of_claims,
    fault_of_issuer,
    fault_of_token,
    is_at_issuer,
    principal_of,
)
from node.model.principals import Principal
from node.model.targets import Network
from node.model.useragent import AGENT
from node.model.ways_out import Asker, Role, url_refusal
from node.runtime.clock import Clock
from node.runtime.version import agent_of
from node.store.core import Core

_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""The types of tokens that give access: RFC 9068, or without saying so."""
_DISCOVERY = "/.well-known/openid-configuration"
_DOCUMENT_MAX = 262_144
_FETCH_S = 5.0
_FRESH = times.HOUR
_USABLE = times.DAY
"""Maximum age of the keys that are used if the issuer does not answer."""
_PAUSE = 30 * times.SECOND
"""Minimum time between two attempts to fetch the keys."""

log = structlog.get_logger()


class OidcTokens:
    """Finds whose token of the configured issuer a request has."""

    def __init__(self, core: Core) -> None:
        settings = core.settings
        assert settings.oidc_issuer is not None  # noqa: S101 - the caller has looked
        assert settings.oidc_audience is not None  # noqa: S101 - the settings are checked together
        self._clock = core.clock
        self._keys = IssuerKeys(
            settings.oidc_issuer, core.clock, settings.allowed_targets, agent_of(settings)
        )
        self._audience = settings.oidc_audience
        self._algorithms = settings.oidc_algorithms.split()
        self._terms = OidcTerms(
            settings.oidc_issuer,
            settings.oidc_roles,
            settings.oidc_role_claim,
            settings.oidc_label_claim,
            settings.oidc_life_max,
        )

    async def principal(self, token: str) -> Principal:
        """Return the user with this token; they may have no role.

        :raises NotAuthenticated: the token is not valid now, or not for this node.
        :raises NotReady: the keys of the issuer cannot be fetched.
        """
        try:
            if (fault := fault_of_token(token)) is not None:
                raise ValueError(fault)  # noqa: TRY301 - told like what the library finds
            try:
                claims = self._verified_claims(token, await self._keys.current())
            except (InvalidKeyIdError, BadSignatureError):
                # A new key may have no name, or that of the one before.
                claims = self._verified_claims(token, await self._keys.fetch_latest())
        except (JoseError, ValueError, TypeError, KeyError) as error:
            msg = f"the token of {self._terms.issuer} is not valid: {reason_of(error)}"
            raise NotAuthenticated(msg) from error
        return principal_of(claims, self._terms)

    def _verified_claims(self, token: str, keys: KeySet) -> dict[str, Any]:
        """Return the claims of a token after its signature, times, and audience are checked."""
        decoded = jwt.decode(
            token, lambda signed: keys.get_by_kid(signed.headers().get("kid")), self._algorithms
        )
        if str(decoded.header.get("typ", "JWT")).lower() not in _TYPES:
            msg = f"it is of the type {decoded.header['typ']!r}, not one that gives access"
            raise ValueError(msg)
        now = self._clock.now() // times.SECOND
        registry = jwt.JWTClaimsRegistry(
            now=now,
            leeway=LEEWAY_S,
            iss={"essential": True, "value": self._terms.issuer},
            aud={"essential": True, "value": self._audience},
            sub={"essential": True},
            iat={"essential": True},
            exp={"essential": True},
        )
        registry.validate(decoded.claims)
        typ = str(decoded.header.get("typ", "JWT"))
        if (fault := fault_of_claims(decoded.claims, typ)) is not None:
            raise ValueError(fault)
        return dict(decoded.claims)


class IssuerKeys:
    """The public keys with which an issuer signs, as they were fetched last."""

    def __init__(
        self, issuer: str, clock: Clock, allowed: Sequence[Network] = (), agent: str = AGENT
    ) -> None:
        """``allowed`` are inner networks in which the issuer may have its keys."""
        self._agent = agent
        self._issuer = issuer
        self._allowed = allowed
        self._clock = clock
        self._fetching = asyncio.Lock()
        self._keys: KeySet | None = None
        self._fetched_at = 0
        self._tried_at: int | None = None
        self._fault = "they were not fetched yet"

    async def current(self) -> KeySet:
        """Return the keys; fetch them if they are older than an hour.

        :raises NotReady: there are none that are at most a day old.
        """
        if self._keys is None or self._age() >= _FRESH:
            await self._fetch_unless_recent()
        if self._keys is None or self._age() >= _USABLE:
            msg = f"the keys of {self._issuer} cannot be fetched: {self._fault}; try again later"
            raise NotReady(msg)
        return self._keys

    async def fetch_latest(self) -> KeySet:
        """Fetch the keys from the issuer, unless that was done a moment ago, and return them."""
        await self._fetch_unless_recent()
        return await self.current()

    def _age(self) -> int:
        return self._clock.monotonic() - self._fetched_at

    async def _fetch_unless_recent(self) -> None:
        async with self._fetching:
            now = self._clock.monotonic()
            if self._tried_at is not None and now < self._tried_at + _PAUSE:
                return
            self._tried_at = now
            try:
                self._keys, self._fetched_at = await self._fetch(), now
            except (ParleyError, aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                self._fault = reason_of(error)
                log.warning("keys of the issuer not fetched", error=self._fault)

    async def _fetch(self) -> KeySet:
        """Fetch the keys from the place that the issuer's discovery document names.

        :raises ValueError: a document is malformed, or names another issuer.
        """
        timeout = aiohttp.ClientTimeout(total=_FETCH_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            discovered = await self._fetch_document(
                session, f"{self._issuer.rstrip('/')}{_DISCOVERY}"
            )
            if discovered.get("issuer") != self._issuer:
                msg = f"its discovery document is that of {discovered.get('issuer')!r}"
                raise ValueError(msg)
            where = discovered.get("jwks_uri")
            if not isinstance(where, str) or (fault := fault_of_issuer(where)) is not None:
                msg = f"its jwks_uri {where!r} {fault if isinstance(where, str) else 'is no URL'}"
                raise ValueError(msg)
            if is_at_issuer(where, self._issuer):
                document = await self._fetch_document(session, where)
            else:
                document = await self._fetch_elsewhere(where)
        try:
            return KeySet.import_key_set(document)  # type: ignore[arg-type] # it is checked there
        except (JoseError, KeyError, TypeError, AttributeError) as error:
            msg = f"its keys cannot be read: {reason_of(error)}"
            raise ValueError(msg) from error

    async def _fetch_elsewhere(self, url: str) -> dict[str, Any]:
        """Fetch a document from a place that the issuer has named, if its address is public.

        :raises ValueError: the issuer may not send this node there, or it is no document.
        :raises OSError: the name leads to no public address.
        """
        asker, role = Asker.PUBLISHER, Role.ISSUER
        rules = rules_of_this_host(allowed=self._allowed)
        if (refusal := url_refusal(asker, role, url, rules)) is not None:
            msg = f"its jwks_uri is refused: {refusal}"
            raise ValueError(msg)
        async with asyncio.timeout(_FETCH_S), judging_session(asker, role, rules) as session:
            return await self._fetch_document(session, url)

    async def _fetch_document(self, session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
        headers = {"Accept-Encoding": "identity", "User-Agent": self._agent}
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            if response.status != 200:  # noqa: PLR2004 - OK
                msg = f"{url} answered {response.status}"
                raise ValueError(msg)
            body = await response.content.read(_DOCUMENT_MAX + 1)
            while len(body) <= _DOCUMENT_MAX and not response.content.at_eof():
                body += await response.content.read(_DOCUMENT_MAX + 1 - len(body))
        if len(body) > _DOCUMENT_MAX:
            msg = f"{url} answered more than {_DOCUMENT_MAX} bytes"
            raise ValueError(msg)
        document = orjson.loads(body)
        if not isinstance(document, dict):
            msg = f"{url} answered no JSON object"
            raise ValueError(msg)  # noqa: TRY004 - a fault of the document
        return document
