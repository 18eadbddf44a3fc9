"""Tokens of an OpenID Connect issuer over HTTP: a small issuer that signs real ones."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from joserfc import jws, jwt
from joserfc.jwk import ECKey, KeySet, RSAKey
from structlog.testing import capture_logs

from node.access import tokens
from node.model import times
from node.model.errors import HostError
from node.model.principals import Role
from node.runtime.extras import install_command
from node.store.database import Notice
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.loopback import serving
from tests.support.served_nodes import Asker, asker, give_token, user

IDLE = {"type": "idle", "spec": {"duration": "PT30S", "participants": ["a"]}}


@dataclass
class Issuer:
    """An issuer with its keys, and how often it was asked for them."""

    clock: ManualClock
    url: str = ""
    keys: list[Any] = field(default_factory=lambda: [_key("first")])
    asked: int = 0
    status: int = 200
    claimed: str | None = None
    keys_at: str | None = None

    def token(
        self, *, key: Any = None, algorithm: str = "ES256", typ: str = "at+jwt", **changes: Any
    ) -> str:
        """Return a token of alice; a claim that is changed to None is left out."""
        now = self.clock.now() // times.SECOND
        claims: dict[str, Any] = {
            "iss": self.url,
            "aud": "parley",
            "sub": "alice",
            "iat": now,
            "exp": now + 600,
            "groups": ["staff"],
            **changes,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        signing = key or self.keys[0]
        named = {} if signing.kid is None else {"kid": signing.kid}
        header = {"alg": algorithm, "typ": typ, **named}
        return jwt.encode(header, claims, signing, algorithms=[algorithm])

    async def discovery(self, _: web.Request) -> web.Response:
        """GET: where the keys are."""
        issuer = self.claimed or self.url
        return web.json_response({"issuer": issuer, "jwks_uri": self.keys_at or f"{self.url}/keys"})

    async def key_set(self, _: web.Request) -> web.Response:
        """GET: the public keys."""
        self.asked += 1
        document = KeySet(self.keys).as_dict(private=False)
        return web.json_response(document, status=self.status)


def _with_secret(claims: str, secret: bytes) -> str:
    """Return a token with these claims that is signed by HMAC, such as with a public key."""
    signed = f"{_encoded(orjson.dumps({'alg': 'HS256', 'kid': 'first'}))}.{claims}"
    return f"{signed}.{_encoded(hmac.digest(secret, signed.encode(), 'sha256'))}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _key(kid: str | None) -> ECKey:
    return ECKey.generate_key(
        "P-256", {"use": "sig"} if kid is None else {"use": "sig", "kid": kid}
    )


@pytest.fixture
async def issuer(clock: ManualClock) -> AsyncIterator[Issuer]:
    """Return an issuer on loopback."""
    made, app = Issuer(clock), web.Application()
    app.router.add_get("/.well-known/openid-configuration", made.discovery)
    app.router.add_get("/keys", made.key_set)
    async with serving(app) as made.url:
        yield made


@pytest.fixture
async def a(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path, issuer: Issuer
) -> AsyncIterator[Asker]:
    """Return a node that accepts the issuer's tokens."""
    settings = {
        "oidc_issuer": issuer.url,
        "oidc_audience": "parley",
        "oidc_roles": {"staff": "run", "noc": "operate", "admins": "own"},
    }
    async with asker("a", await new_database(), clock, tmp_path, **settings) as owner:
        yield owner


def twice(issuer: Issuer, members: bytes) -> str:
    """Return a token of the issuer, signed as it is, in which a claim is there twice."""
    claims = orjson.loads(jws.extract_compact(issuer.token().encode()).payload)
    claims.pop("aud")
    payload = orjson.dumps(claims)[:-1] + b", " + members + b"}"
    header = {"alg": "ES256", "typ": "at+jwt", "kid": issuer.keys[0].kid}
    return jws.serialize_compact(header, payload, issuer.keys[0], ["ES256"])


async def status_of(a: Asker, token: str, path: str = "/v1/tasks") -> tuple[int, str]:
    """Return the status of a reading with a token, and the reason if it is refused."""
    async with user(a, token) as caller:
        status, document = await caller.ask("GET", path)
        return status, document.get("detail", "")


async def test_a_user_of_the_issuer_has_the_role_of_their_groups(a: Asker, issuer: Issuer) -> None:
    """Alice of the group staff creates a task that is hers, and is told what an operator may."""
    async with user(a, issuer.token()) as alice:
        document = {"test": IDLE, "schedule": {"repeat": "PT1H"}}
        status, task = await alice.ask("POST", "/v1/tasks", document)
        assert (status, task["requester"]) == (201, "alice")
        status, problem = await alice.ask("POST", "/v1/pools", {})
        assert (status, "has the role run" in problem["detail"]) == (403, True)
    async with user(a, issuer.token(sub="bob")) as bob:
        assert (await bob.ask("GET", "/v1/tasks"))[1]["items"] == []
    assert (await status_of(a, issuer.token(groups=["admins"]), "/v1/tokens"))[0] == 200
    _, page = await a.ask("GET", "/v1/audit?principal=alice&verb=create_task")
    assert [(row["key"], row["role"]) for row in page["items"]] == [("alice", "run")]


async def test_without_a_mapped_group_nothing_is_permitted(a: Asker, issuer: Issuer) -> None:
    """A user whom the issuer knows, and to whom the owner grants nothing, is refused 403."""
    for groups in (None, [], ["guests"]):
        status, reason = await status_of(a, issuer.token(groups=groups))
        assert (status, "has the role none" in reason) == (403, True)


async def test_wrong_tokens_are_refused(a: Asker, issuer: Issuer) -> None:
    """Another issuer, audience, time, key, algorithm, or a changed byte is answered 401."""
    now = issuer.clock.now() // times.SECOND
    genuine = issuer.token()
    header, claims, signature = genuine.split(".")
    public = issuer.keys[0].as_pem(private=False)
    strange = RSAKey.generate_key(2048, {"kid": "first"})
    wrong = [
        issuer.token(iss="https://other.example"),
        issuer.token(iss=None),
        issuer.token(aud="grafana"),
        issuer.token(aud=["grafana", "x"]),
        issuer.token(aud=None),
        issuer.token(typ="logout+jwt"),
        issuer.token(typ="JWT", nonce="n-0S6_WzA2Mj"),
        issuer.token(typ="JWT", at_hash="77QmUPtjPfzWtF2AnpK9RQ"),
        issuer.token(typ="JWT", c_hash="x"),
        issuer.token(sub="owner"),
        issuer.token(sub="Owner"),
        issuer.token(sub="follower"),
        twice(issuer, b'"aud": "grafana", "aud": "parley"'),
        twice(issuer, b'"aud": "parley", "sub": "bob"'),
        issuer.token(sub=None),
        issuer.token(exp=None),
        issuer.token(iat=None),
        issuer.token(iat=now - 700, exp=now - 30),
        issuer.token(iat=now + 60),
        issuer.token(nbf=now + 60),
        issuer.token(exp=now + 3601),
        issuer.token(exp="tomorrow"),
        issuer.token(sub="a b"),
        issuer.token(key=_key("first")),
        issuer.token(key=strange, algorithm="RS256"),
        _with_secret(claims, b"x" * 32),
        _with_secret(claims, public),
        f"{header}.{claims}.",
        f"eyJhbGciOiJub25lIiwia2lkIjoiZmlyc3QifQ.{claims}.",
        f"{header}.{claims[:-2]}AA.{signature}",
        f"{header}.{claims}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}",
        "eyJ.eyJ.eyJ",
        "eyJ..",
    ]
    for token in wrong:
        status, reason = await status_of(a, token)
        assert status == 401, token
        assert issuer.url in reason or "PARLEY_OIDC" in reason
    assert (await status_of(a, genuine))[0] == 200
    assert issuer.asked == 1


async def test_clocks_may_differ_a_little(a: Asker, issuer: Issuer) -> None:
    """A token of half a minute ahead, or that expired a moment ago, is valid still."""
    now = issuer.clock.now() // times.SECOND
    skewed: list[dict[str, Any]] = [{"iat": now + 29}, {"iat": now - 600, "exp": now - 29}]
    for changes in skewed:
        assert (await status_of(a, issuer.token(**changes)))[0] == 200


async def test_a_new_key_is_fetched_once_it_is_used(a: Asker, issuer: Issuer) -> None:
    """An unknown key is looked for at once, and then not more often than twice a minute."""
    assert (await status_of(a, issuer.token()))[0] == 200
    issuer.keys.insert(0, _key("second"))
    issuer.clock.advance(30 * times.SECOND)
    assert (await status_of(a, issuer.token()))[0] == 200
    assert issuer.asked == 2
    for number in range(20):
        assert (await status_of(a, issuer.token(key=_key(f"made up {number}"))))[0] == 401
    assert issuer.asked == 2
    issuer.clock.advance(30 * times.SECOND)
    assert (await status_of(a, issuer.token(key=_key("made up"))))[0] == 401
    assert issuer.asked == 3


@pytest.mark.parametrize("name", [None, "signing"])
async def test_another_key_without_another_name_is_looked_for(
    a: Asker, issuer: Issuer, name: str | None
) -> None:
    """An issuer whose keys have no names, or always the same, can change its key."""
    issuer.keys = [_key(name)]
    assert (await status_of(a, issuer.token()))[0] == 200
    issuer.keys = [_key(name)]
    issuer.clock.advance(30 * times.SECOND)
    assert (await status_of(a, issuer.token()))[0] == 200
    assert issuer.asked == 2


async def test_a_key_that_the_issuer_has_withdrawn_is_refused(a: Asker, issuer: Issuer) -> None:
    """The keys are fetched again after an hour, and what is not among them is refused then."""
    old = issuer.keys[0]
    assert (await status_of(a, issuer.token()))[0] == 200
    issuer.keys = [_key("second")]
    issuer.clock.advance(times.HOUR)
    assert (await status_of(a, issuer.token(key=old)))[0] == 401
    assert (await status_of(a, issuer.token()))[0] == 200


async def test_an_issuer_that_does_not_answer(a: Asker, issuer: Issuer) -> None:
    """Without keys the answer is an honest 503; keys that were fetched are used for a day."""
    issuer.status = 500
    with capture_logs() as lines:
        status, reason = await status_of(a, issuer.token())
    assert (status, "/keys answered 500" in reason) == (503, True)
    assert [line["event"] for line in lines] == ["keys of the issuer not fetched"]
    issuer.status = 200
    assert (await status_of(a, issuer.token()))[0] == 503
    issuer.clock.advance(30 * times.SECOND)
    assert (await status_of(a, issuer.token()))[0] == 200
    issuer.status = 500
    issuer.clock.advance(23 * times.HOUR)
    assert (await status_of(a, issuer.token()))[0] == 200
    issuer.clock.advance(times.HOUR)
    assert (await status_of(a, issuer.token()))[0] == 503
    assert (await a.ask("GET", "/v1/tasks"))[0] == 200


async def test_a_discovery_document_of_another_issuer_is_not_believed(
    a: Asker, issuer: Issuer
) -> None:
    """The keys that such a document names are not fetched."""
    issuer.claimed = "https://other.example"
    status, reason = await status_of(a, issuer.token())
    assert (status, "that of 'https://other.example'" in reason) == (503, True)
    assert issuer.asked == 0


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("https://169.254.169.254/keys", "the metadata service of a cloud"),
        ("https://10.9.8.7/keys", "a private address"),
        ("https://127.0.0.1:9/keys", "a loopback address"),
        ("https://localhost:9/keys", "this host itself"),
        ("http://203.0.113.9/keys", "is not an https URL"),
    ],
)
@pytest.mark.mostly_nightly
async def test_an_issuer_names_no_inner_place_for_its_keys(
    a: Asker, issuer: Issuer, place: str, reason: str
) -> None:
    """The word of an issuer is good for its own place, and for public ones by TLS."""
    issuer.keys_at = place
    status, told = await status_of(a, issuer.token())
    assert (status, reason in told) == (503, True), told
    assert issuer.asked == 0


async def test_a_stream_ends_with_its_token(a: Asker, issuer: Issuer) -> None:
    """An event stream that was opened with such a token ends when that expires."""
    async with (
        user(a, issuer.token()) as alice,
        alice.session.get(f"{a.node.card.url}/v1/events") as stream,
    ):
        assert await stream.content.readuntil(b"\n\n")
        issuer.clock.advance(11 * times.MINUTE)
        a.node.hub.on_notice(Notice("wake", "", ()))
        assert await stream.content.read() == b""


async def test_without_the_library_the_node_says_what_to_install(
    new_database: NewDatabase,
    clock: ManualClock,
    tmp_path: Path,
    issuer: Issuer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that has the setting and not the extra does not start."""
    monkeypatch.setattr(tokens, "find_spec", lambda _: None)
    settings = {"oidc_issuer": issuer.url, "oidc_audience": "x", "oidc_roles": {"noc": "own"}}
    dsn = await new_database()
    with pytest.raises(HostError, match=re.escape(install_command("oidc"))):
        async with asker("a", dsn, clock, tmp_path, **settings):
            pass


async def test_a_key_id_that_is_no_text_is_refused(a: Asker, issuer: Issuer) -> None:
    """A stranger is answered 401 with a reason, whatever they write into a header."""
    header = _encoded(rb'{"alg":"ES256","kid":"\ud800"}')
    status, reason = await status_of(a, f"{header}.{_encoded(b'{}')}.{_encoded(bytes(64))}")
    assert (status, "is not valid" in reason) == (401, True)


async def test_a_user_of_the_issuer_is_no_user_of_the_node(a: Asker, issuer: Issuer) -> None:
    """A user of the issuer has not the tasks of a token's user, until the owner revokes that."""
    await give_token(a.node, "of alice", "alice", Role.RUN)
    status, reason = await status_of(a, issuer.token())
    assert (status, "is that of a token of this node" in reason) == (401, True)
    _, page = await a.ask("GET", "/v1/tokens")
    [alice] = [token for token in page["items"] if token["label"] == "alice"]
    assert (await a.ask("DELETE", f"/v1/tokens/{alice['id']}"))[0] == 200
    assert (await status_of(a, issuer.token()))[0] == 200


async def test_a_plain_token_of_a_machine_gives_access(a: Asker, issuer: Issuer) -> None:
    """A token of the type JWT gives access if nothing tells that it is an ID token."""
    assert (await status_of(a, issuer.token(typ="JWT", scope="parley")))[0] == 200
    assert (await status_of(a, issuer.token(typ="at+jwt", nonce="x")))[0] == 200
