"""The tokens with which users show who they are, and which role they have."""

from __future__ import annotations

import contextlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from node.model import times
from node.model.audit import AuditOutcome
from node.model.errors import DatabaseUnavailable, HostError, NotAuthenticated, NotFound
from node.model.oidc import is_jwt
from node.model.principals import FOLLOWER, Principal, PrincipalKind, Role
from node.model.wire.tokens import NewToken, Token, TokenRequest
from node.runtime.extras import install_command
from node.runtime.threads import aside
from node.store import audit, tokens
from node.store.core import Core
from node.store.database import Connection, Notice
from node.store.notices import notify
from node.store.tokens import StoredToken
from node.trust.tokens import digest, new_token, write_token

if TYPE_CHECKING:
    from node.access.oidc import OidcTokens

_OWNER = "owner"
_USE_STEP = times.MINUTE
"""Minimum time between two records of the use of a token."""
_REMEMBERED_MAX = 1000


class AccessTokens:
    """Makes, lists and revokes the tokens of this node, and finds whose token a request has.

    Tokens are looked up with each request, so that a revoked one is refused at once, by every
    process. Those that were valid are remembered for what has to be read while the database, which
    knows them, does not answer.
    """

    def __init__(self, core: Core, new_id: Callable[[], UUID]) -> None:
        """``new_id`` makes the ids of tokens."""
        self._core = core
        self._database = core.database
        self._clock = core.clock
        self._new_id = new_id
        self._oidc = _issuer_of(core)
        self._remembered: OrderedDict[str, Principal] = OrderedDict()
        self._doubted: set[str] = set()

    def on_notice(self, notice: Notice) -> None:
        """Forget the remembered tokens if one was revoked; doubt them if that may be unknown."""
        if notice.kind in {"wake", "generation"}:
            self._doubted |= self._remembered.keys()
        if notice.kind in {"token", "wake", "generation"}:
            self._remembered.clear()

    async def reread(self) -> None:
        """Look up again the tokens that were doubted, and remember those that are still valid.

        A server that was started again may hang before they are used, and its metrics say so.
        """
        if not (doubted := set(self._doubted)):
            return
        async with self._database.connection() as connection:
            known = await tokens.find_all(connection, doubted)
        self._doubted -= doubted
        for secret_digest, token in known.items():
            if self._why_invalid(token) is None:
                self._remembered.setdefault(secret_digest, _principal_of(token))

    def find_remembered(self, token: str) -> Principal | None:
        """Return the user whose token was valid when the database was last asked, if it was.

        This is for a database that does not answer: nobody can revoke a token meanwhile.
        """
        principal = self._remembered.get(digest(token))
        now = self._clock.now()
        expired = principal is not None and (principal.until or times.LATEST) <= now
        return None if expired else principal

    async def ensure_owner(self, connection: Connection, path: Path) -> None:
        """Make a token for the owner and write it to this file, unless it has a valid one."""
        await self._ensure_token_file(connection, path, TokenRequest(label=_OWNER, role=Role.OWN))

    async def ensure_follower(self, connection: Connection, folder: Path) -> None:
        """Make a token for what follows the meshes of a folder, if the folder has any."""
        if await aside(lambda: any(folder.glob("*.json")), "look for followed meshes"):
            request = TokenRequest(label=FOLLOWER, role=Role.OPERATE)
            await self._ensure_token_file(connection, folder / "token", request)

    async def _ensure_token_file(
        self, connection: Connection, path: Path, request: TokenRequest
    ) -> None:
        if (secret := _read_token(path)) is not None:
            known = await tokens.find(connection, digest(secret))
            if known is not None and self._why_invalid(known) is None:
                return
        made = await self._make(connection, request, "this node")
        entry = self._core.own_entry("token_made", str(made.id), AuditOutcome.DONE)
        await audit.keep(connection, [entry])
        write_token(path, made.token)

    async def principal(self, token: str) -> Principal | None:
        """Return the user with this token, and note its use; None if it was never made here.

        :raises NotAuthenticated: it has expired, was revoked, or is none that an issuer signed.
        """
        if self._oidc is not None and is_jwt(token):
            return await self._issuer_user(await self._oidc.principal(token))
        now = self._clock.now()
        async with self._database.connection() as connection:
            known = await tokens.find(connection, digest(token))
            if known is None:
                return None
            self._remembered.pop(known_as := digest(token), None)
            principal = _principal_of(known)
            if (reason := self._why_invalid(known)) is not None:
                raise NotAuthenticated(reason, claimed=principal)
        if known.used_at is None or not known.used_at <= now < known.used_at + _USE_STEP:
            # Reading goes on with a full disk, and at a server that takes no change.
            with contextlib.suppress(DatabaseUnavailable):
                async with self._database.connection() as connection:
                    await tokens.note_use(connection, known.id, now)
        self._remembered[known_as] = principal
        if len(self._remembered) > _REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        return principal

    async def _issuer_user(self, principal: Principal) -> Principal:
        """Return a user of the issuer, unless a valid token of this node has their label.

        :raises NotAuthenticated: one has, so that this user would have the tasks of another one.
        """
        with contextlib.suppress(DatabaseUnavailable):  # nothing is changed meanwhile
            async with self._database.connection() as connection:
                if await tokens.valid_roles(connection, principal.name, self._clock.now()):
                    msg = (
                        f"the label {principal.name!r} is that of a token of this node; its owner "
                        "revokes that one, so that the user of the issuer takes its place"
                    )
                    raise NotAuthenticated(msg, claimed=principal)
        return principal

    async def lowest_principal(self, label: str) -> Principal:
        """Return the user of a label with the lowest role in which they may post here.

        It is ``run`` for whoever has no token of this node, as users of an issuer and of other
        interfaces.
        """
        async with self._database.connection() as connection:
            roles = await tokens.valid_roles(connection, label, self._clock.now())
        posting = (role for role in Role if role in roles and role.includes(Role.RUN))
        return Principal(PrincipalKind.TOKEN, label, next(posting, Role.RUN))

    def _why_invalid(self, token: StoredToken) -> str | None:
        """Return why a token of this node is not valid now, or None if it is."""
        if token.revoked_at is not None:
            then, ended = token.revoked_at, "was revoked"
        elif token.expires_at is not None and token.expires_at <= self._clock.now():
            then, ended = token.expires_at, "has expired"
        else:
            return None
        return (
            f"the token {token.label!r} {ended} at {times.to_the_second(then)}; ask the owner of "
            f"the node for another one (parley token add --role {token.role} "
            f"--label {token.label})"
        )

    async def add(self, request: TokenRequest, by: Principal) -> NewToken:
        """Make a token and return it with its secret, which is stored nowhere."""
        async with self._database.transaction() as connection:
            return await self._make(connection, request, by.name)

    async def _make(self, connection: Connection, request: TokenRequest, by: str) -> NewToken:
        secret, now = new_token(secrets.token_bytes), self._clock.now()
        expires_at = None if request.expires_in is None else now + request.expires_in
        made = StoredToken(self._new_id(), request.label, request.role, now, by, expires_at)
        await tokens.keep(connection, digest(secret), made)
        return NewToken(token=secret, **asdict(made))

    async def page(
        self, prefix: str | None, before: tuple[int, UUID] | None, limit: int
    ) -> list[Token]:
        """Return a page of all tokens, the newest first, with those that are valid no longer.

        ``prefix`` is the beginning of their ids, ``before`` the instant and the id of the last
        token of the page before.
        """
        async with self._database.connection() as connection:
            return list(
                map(_token_for_people, await tokens.find_page(connection, prefix, before, limit))
            )

    async def revoke(self, token: UUID) -> Token:
        """Make a token invalid at once; idempotent.

        :raises NotFound: there is none with this id.
        """
        async with self._database.transaction() as connection:
            revoked = await tokens.revoke(connection, token, self._clock.now())
            if revoked is None:
                msg = f"there is no token {token} here; see parley token list"
                raise NotFound(msg)
            await notify(connection, "token", token, "revoked")
        return _token_for_people(revoked)


def _principal_of(token: StoredToken) -> Principal:
    return Principal(PrincipalKind.TOKEN, token.label, token.role, str(token.id), token.expires_at)


def _issuer_of(core: Core) -> OidcTokens | None:
    """Return the reader of the configured issuer's tokens; None if no issuer is configured.

    :raises HostError: the library that checks them is not installed.
    """
    if core.settings.oidc_issuer is None:
        return None
    if find_spec("joserfc") is None:
        msg = f"PARLEY_OIDC_ISSUER needs joserfc; install it: {install_command('oidc')}"
        raise HostError(msg)
    from node.access.oidc import OidcTokens  # noqa: PLC0415 - needs an extra

    return OidcTokens(core)


def _read_token(path: Path) -> str | None:
    return path.read_text().strip() if path.exists() else None


def _token_for_people(token: StoredToken) -> Token:
    return Token(**asdict(token))
