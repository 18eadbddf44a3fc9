"""Sign and verify messages between nodes: RFC 9421 with an RFC 9530 digest, in a fixed profile.

A signed request carries four headers::

    Content-Digest: sha-256=:…:
    Parley-To: ed25519:…                     the identity of the node it is meant for
    Signature-Input: parley=("@method" "@path" "@query" "content-digest" "parley-to")
                     ;created=1798761600;nonce="…";keyid="ed25519:…";alg="ed25519"
    Signature: parley=:…:

The answer carries the same headers without ``Parley-To``. They cover ``("@status" "content-digest"
"@method";req "@path";req "@query";req)`` and repeat the nonce of the request, so that an answer to
one request is none to another, nor to one for another path that somebody on the way has made with
the same nonce. Version 0.3 covers the status and the digest alone, and takes nothing else. So
whoever wants the answer bound to the request says so in ``Accept-Signature`` (RFC 9421, section 5),
and takes the older form only from a node whose card does not say that it has the newer one: a card
is signed.

An unsigned request (for a card) names the nonce for its answer in ``Parley-Nonce``. If a key is not
the node's first one, ``Parley-Lineage`` tells how the node came to it (:mod:`node.trust.lineage`);
that is signed in itself, and so not covered.

**Own code** on top of ``cryptography``, because the library ``http-message-signatures`` takes 1.5
ms to sign and 0.8 ms to verify, most of a request's time, for a generality that a fixed profile
does not need. The tests hold both against each other.

**What is covered.** ``@target-uri`` and ``@authority`` are not: a node has several names, and
proxies in front of it change scheme and ``Host``, so the receiver would have to guess what was
signed. They would identify the server; ``Parley-To`` does that better, by the receiver's key. Path
and query are signed as in the request line: a proxy must not rewrite them. No other header is
covered, so none may change the effect of a participant request.

**What is accepted** is exactly this form: these components in this order, these four parameters
once each in any order, one signature. Anything else is refused with the reason.

**The order of checks.** The head is checked before the body is read (:meth:`Verifier.check_head`),
and cheap checks come first: form, receiver, whether the key is known, time, and then the signature,
which covers the digest of the body. A stranger never makes the node read or hash a body, and learns
only whether a key is pinned here, which is not secret. Then come the body's digest and, last, the
nonce (:meth:`Verifier.check_body`): only the holder of a known key can use up memory.

**Time.** ``created`` is in whole seconds. Nonces are lost at a restart, so signatures created
before the start are refused, and the client signs again; because of the whole seconds that can
take until the second after the start. (A peer whose clock runs ahead by ``a`` ≤ ``skew_s`` leaves
``a`` seconds in which a request from before the restart could come again; ids make participant
requests idempotent.) The time of an answer is not checked: its nonce shows that it is new.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from node.model.errors import NotAuthenticated, UnknownPeer
from node.model.times import SECOND, format_instant
from node.trust.identities import fingerprint, public_of, verify
from node.trust.keys import NodeKey
from node.trust.lineage import HEADER, InvalidLineageError, Lineage, read_lineage
from node.trust.nonces import NonceMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

AGE_MAX_S = 60
SKEW_S = 30
NONCES_PER_SIGNER = 200_000
"""Maximum per 90 s (25 MB): 2,200 requests/s of one peer, close to what a node can verify."""

COMPONENTS = '("@method" "@path" "@query" "content-digest" "parley-to")'
ANSWER_COMPONENTS = '("@status" "content-digest")'
BOUND_COMPONENTS = '("@status" "content-digest" "@method";req "@path";req "@query";req)'
WANTS_BOUND = {"Accept-Signature": f"parley={BOUND_COMPONENTS}"}
"""Header of a request that asks for an answer which is signed as one to it."""
PARAMETERS = ("created", "nonce", "keyid", "alg")
NONCE_HEADER = "Parley-Nonce"
"""Header of an unsigned request that asks for a signed answer."""

_NONCE_BYTES = 16
_ANSWER_HEADERS = ("content-digest", "signature-input", "signature")
_HEADERS = (*_ANSWER_HEADERS, "parley-to")
_METHOD = re.compile(r"[A-Z]{1,20}", re.ASCII)
_TARGET = re.compile(r"/[!-~]*", re.ASCII)
_INPUT = re.compile(
    r'parley=(?P<components>\((?:"[a-z@-]+"(?:;req)?(?: "[a-z@-]+"(?:;req)?)*)?\))'
    r'(?P<parameters>(?:;[a-z]+=(?:[0-9]+|"[!#-\[\]-~]*"))*)',
    re.ASCII,
)
_PARAMETER = re.compile(r';([a-z]+)=([0-9]+|"[!#-\[\]-~]*")', re.ASCII)
_CREATED = re.compile(r"[1-9][0-9]{9}", re.ASCII)  # 2001 to 2286
_NONCE = re.compile(r"[A-Za-z0-9_-]{16,32}", re.ASCII)
_DIGEST = re.compile(r"sha-256=:[A-Za-z0-9+/]{43}=:", re.ASCII)
_SIGNATURE = re.compile(r"parley=:(?P<bytes>[A-Za-z0-9+/]{86}==):", re.ASCII)


@dataclass(frozen=True)
class SignedHead:
    """The well-formed content of the four headers; ``created`` is in seconds.

    ``identity`` is that of the node whose ``key`` it is: the key itself before that is known.
    """

    identity: str
    key: str
    created: int
    nonce: str
    to: str
    digest: str
    signature: bytes
    signed_as: str


def new_nonce(random_bytes: Callable[[int], bytes]) -> str:
    """Return a nonce of 128 bits; ``random_bytes`` is as for tokens."""
    return base64.urlsafe_b64encode(random_bytes(_NONCE_BYTES)).decode("ascii").rstrip("=")


def sign(  # noqa: PLR0913 - a request has this many parts, and all of them are signed
    key: NodeKey, method: str, url: str, body: bytes, *, created: int, nonce: str, to: str
) -> dict[str, str]:
    """Return the headers that sign a request.

    ``url`` is absolute and percent-encoded, as it is sent (``str`` of a yarl URL); ``body`` is
    the body as sent, or empty; ``created`` is in seconds; ``nonce`` is new for each request
    (:func:`new_nonce`); ``to`` is the identity of the called node.

    :raises ValueError: no receiver would accept an argument.
    """
    target = _target_of(url)
    public_of(to)
    sound = _METHOD.fullmatch(method) and _CREATED.fullmatch(str(created))
    if not sound or not _NONCE.fullmatch(nonce):
        msg = "method, created or nonce does not have the form that is signed"
        raise ValueError(msg)
    digest = content_digest(body)
    signed_as = _signature_parameters(COMPONENTS, created, nonce, key.public_text)
    signature = key.sign(_signature_base(method, target, digest, to, signed_as))
    return {"Parley-To": to, **_signature_headers(key, digest, signed_as, signature)}


@dataclass(frozen=True)
class Asked:
    """The request to which an answer is given: its method, and its path and query as sent."""

    method: str
    target: str

    @classmethod
    def of(cls, method: str, url: str) -> Asked:
        """Return a request for an absolute, percent-encoded URL."""
        return cls(method, _target_of(url))


def sign_answer(
    key: NodeKey, status: int, body: bytes, *, created: int, nonce: str, asked: Asked | None = None
) -> dict[str, str]:
    """Return the headers that sign the answer to the request with this nonce.

    ``body`` is the body as sent; ``created`` is in seconds. ``asked`` is None for a version that
    knows no answers which are bound to their requests.
    """
    digest = content_digest(body)
    components = ANSWER_COMPONENTS if asked is None else BOUND_COMPONENTS
    signed_as = _signature_parameters(components, created, nonce, key.public_text)
    signature = key.sign(_answer_base(status, digest, asked, signed_as))
    return _signature_headers(key, digest, signed_as, signature)


def wants_bound_answer(headers: Mapping[str, str]) -> bool:
    """Return whether a request asks for an answer that is signed as one to it."""
    return all(headers.get(name) == value for name, value in WANTS_BOUND.items())


def requested_nonce(headers: Mapping[str, str]) -> str | None:
    """Return the nonce with which an unsigned request asks for a signed answer, if it does."""
    nonce = headers.get(NONCE_HEADER, "")
    return nonce if _NONCE.fullmatch(nonce) else None


def check_answer(  # noqa: PLR0913 - as for signing, and what the node is known to do
    identity: str,
    nonce: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    asked: Asked,
    binds: bool,
) -> Lineage:
    """Check that a node (by its identity) gave this answer to the request with this nonce.

    ``binds`` is whether its version signs answers as answers to a request: then no other is taken.

    Return the lineage that leads to the key; whether that key is the last one it does not tell.

    :raises NotAuthenticated: it did not, with the reason. No other exception is raised, whatever
        the answer contains.
    """
    answer = Words("the answer")
    taken = (BOUND_COMPONENTS,) if binds else (BOUND_COMPONENTS, ANSWER_COMPONENTS)
    claim = _claim_of(headers, answer, _ANSWER_HEADERS, taken)
    lineage = _lineage_of(headers, claim.key, answer)
    if lineage.identity != identity:
        raise answer.refusal(
            f"is signed with the key {fingerprint(claim.key)}, not {fingerprint(identity)}"
        )
    if claim.nonce != nonce:
        raise answer.refusal("is one to another request")
    if claim.digest != content_digest(body):
        raise answer.refusal("has a body that differs from its Content-Digest")
    bound = asked if claim.signed_as.startswith(BOUND_COMPONENTS) else None
    base = _answer_base(status, claim.digest, bound, claim.signed_as)
    if not verify(claim.key, claim.signature, base):
        raise answer.refusal(
            "has a wrong signature: its status or a signed header was changed, or it was given to "
            "a request with another method, path or query"
        )
    return lineage


def signed_at(headers: Mapping[str, str]) -> int:
    """Return when an answer that was checked was signed (µs), by the clock of its node."""
    taken = (BOUND_COMPONENTS, ANSWER_COMPONENTS)
    claim = _claim_of(headers, Words("the answer"), _ANSWER_HEADERS, taken)
    return claim.created * SECOND


def _lineage_of(headers: Mapping[str, str], key: str, words: Words) -> Lineage:
    text = headers.get(HEADER)
    try:
        lineage = Lineage(key) if text is None else read_lineage(text)
    except InvalidLineageError as error:
        raise words.refusal(f"tells no lineage of its key: {error}") from None
    if lineage.key != key:
        raise words.refusal(f"tells the lineage of another key than its own, {fingerprint(key)}")
    return lineage


def _signature_parameters(components: str, created: int, nonce: str, identity: str) -> str:
    return f'{components};created={created};nonce="{nonce}";keyid="{identity}";alg="ed25519"'


def _signature_headers(
    key: NodeKey, digest: str, signed_as: str, signature: bytes
) -> dict[str, str]:
    return {
        **({HEADER: str(key.lineage)} if key.lineage.successions else {}),
        "Content-Digest": digest,
        "Signature-Input": f"parley={signed_as}",
        "Signature": f"parley=:{base64.b64encode(signature).decode('ascii')}:",
    }


def content_digest(body: bytes) -> str:
    """Return the value of ``Content-Digest`` for a body (RFC 9530, SHA-256)."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode('ascii')}:"


class Verifier:
    """Checks the signatures of the requests that one node receives, and remembers their nonces."""

    def __init__(
        self,
        identity: str,
        started: Callable[[], int],
        signer: Callable[[str, int], str | None],
        *,
        age_max_s: int = AGE_MAX_S,
        skew_s: int = SKEW_S,
        nonces_per_signer: int = NONCES_PER_SIGNER,
    ) -> None:
        """Verify for the node ``identity``, whose memory of nonces begins at ``started()`` (µs).

        That is the instant of the start by the clock as it is now: it was possibly set since.
        ``signer`` returns the identity of the peer whose key counts now, None for any other key,
        and says why by :class:`NotAuthenticated`, if it knows. A signature is accepted for
        ``age_max_s`` after its creation, and up to ``skew_s`` before it by this host's clock.
        """
        self._identity = identity
        self._started = started
        self._signer = signer
        self._age_max_s = age_max_s
        self._skew_s = skew_s
        self._nonces = NonceMemory((age_max_s + skew_s) * SECOND, nonces_per_signer)

    def check_head(
        self, *, method: str, target: str, headers: Mapping[str, str], now: int
    ) -> SignedHead:
        """Return the head of a request that a peer signed for this node, before its body is read.

        ``target`` is the path and query as in the request line (``raw_path`` of an aiohttp
        request); ``headers`` are all headers, including repeated ones if the mapping can hold
        them; ``now`` is in microseconds.

        :raises NotAuthenticated: at any doubt, with the reason. No other exception is raised,
            whatever the request contains.
        """
        if not _METHOD.fullmatch(method) or not _TARGET.fullmatch(target):
            raise _REQUEST.refusal("has a method or a target that cannot be signed")
        claim = _claim_of(headers)
        self._check_receiver(claim)
        identity = self._identity_of(claim.key, now)
        self._check_time(claim, now)
        base = _signature_base(method, target, claim.digest, claim.to, claim.signed_as)
        if not verify(claim.key, claim.signature, base):
            raise _REQUEST.refusal(
                "has a wrong signature: method, path, query or a signed header was changed, or "
                f"it was not made with the key {fingerprint(claim.key)}"
            )
        return replace(claim, identity=identity)

    def check_body(self, head: SignedHead, body: bytes, now: int) -> str:
        """Return the identity of the peer that signed this request, once in its life.

        ``body`` is as received, before any decoding.

        :raises NotAuthenticated: the body is not the signed one, or the request came before.
        """
        if head.digest != content_digest(body):
            raise _REQUEST.refusal("has a body that differs from its Content-Digest")
        objection = self._nonces.objection(head.identity, head.nonce, head.created, now)
        if objection:
            raise _REQUEST.refusal(objection)
        return head.identity

    def _check_receiver(self, claim: SignedHead) -> None:
        if claim.to != self._identity:
            raise _REQUEST.refusal(
                f"is meant for the node with the key {fingerprint(claim.to)}; this node has the "
                f"key {fingerprint(self._identity)}"
            )

    def _identity_of(self, key: str, now: int) -> str:
        identity = self._signer(key, now)
        if identity is None:
            msg = (
                f"the request names the key {fingerprint(key)}, which this node does "
                "not know; its owner adds it with: parley node add URL, or, if it fetches its work "
                f"(--pull), parley node add {key}"
            )
            raise UnknownPeer(msg)
        return identity

    def _check_time(self, claim: SignedHead, now: int) -> None:
        created = claim.created * SECOND
        clocks = (
            f"signed at {format_instant(created)}, and this node's clock says {format_instant(now)}"
        )
        if now > created + self._age_max_s * SECOND:
            raise _REQUEST.refusal(f"is stale: {clocks}, more than {self._age_max_s} s later")
        if now < created - self._skew_s * SECOND:
            raise _REQUEST.refusal(
                f"comes from the future: {clocks}, more than {self._skew_s} s earlier; compare the "
                "clocks of both hosts"
            )
        if created < (started := self._started()):
            raise _REQUEST.refusal(
                f"was signed at {format_instant(created)}, before this node started at "
                f"{format_instant(started)}; sign it again"
            )


@dataclass(frozen=True)
class Words:
    """The words for what is refused: a request, or an answer."""

    what: str

    def refusal(self, reason: str) -> NotAuthenticated:
        """Return the error for a request or an answer with this fault."""
        return NotAuthenticated(f"{self.what} {reason}")

    def malformed_error(self, fault: str) -> NotAuthenticated:
        """Return the error for a signature whose form has this fault."""
        return self.refusal(f"carries a malformed signature: {fault}")


_REQUEST = Words("the request")


def _claim_of(
    headers: Mapping[str, str],
    words: Words = _REQUEST,
    names: Sequence[str] = _HEADERS,
    taken: Sequence[str] = (COMPONENTS,),
) -> SignedHead:
    """Parse the signature's headers ``names``, which must have exactly our form."""
    fields = _fields_of(headers, names, words)
    shape = _INPUT.fullmatch(fields["signature-input"])
    if shape is None:
        raise words.malformed_error('Signature-Input is not one signature labelled "parley"')
    parameters = _parameters_of(shape["parameters"], words)
    if shape["components"] not in taken:
        raise words.refusal(f"covers the wrong components; this node requires exactly {taken[0]}")
    signature = _SIGNATURE.fullmatch(fields["signature"])
    if signature is None or not _is_canonical(signature["bytes"]):
        raise words.malformed_error("Signature does not consist of 64 bytes in base64")
    if _DIGEST.fullmatch(fields["content-digest"]) is None:
        raise words.malformed_error("Content-Digest is not one SHA-256 in base64")
    to = fields.get("parley-to", parameters["keyid"])
    for name, identity in (("keyid", parameters["keyid"]), ("Parley-To", to)):
        try:
            public_of(identity)
        except ValueError as error:
            raise words.malformed_error(f"{name} is {error}") from None
    return SignedHead(
        identity=parameters["keyid"],
        key=parameters["keyid"],
        created=int(parameters["created"]),
        nonce=parameters["nonce"],
        to=to,
        digest=fields["content-digest"],
        signature=base64.b64decode(signature["bytes"]),
        signed_as=fields["signature-input"].removeprefix("parley="),
    )


def _fields_of(headers: Mapping[str, str], names: Sequence[str], words: Words) -> dict[str, str]:
    """Return these headers by their lower-case names; each must be there exactly once."""
    fields: dict[str, str] = {}
    for name, value in headers.items():
        lower = name.lower()
        if lower in names:
            if lower in fields:
                raise words.malformed_error(f"{lower} is given twice")
            fields[lower] = value
    if "signature-input" not in fields or "signature" not in fields:
        raise words.refusal(
            "is not signed; nodes sign what they send to each other with their keys (RFC 9421)"
        )
    for name in names:
        if name not in fields:
            raise words.malformed_error(f"the header {name} is missing")
    return fields


def _parameters_of(text: str, words: Words) -> dict[str, str]:
    """Return the four parameters without their quotes; each must be well-formed."""
    pairs = _PARAMETER.findall(text)
    if sorted(name for name, _ in pairs) != sorted(PARAMETERS):
        raise words.malformed_error(
            f"its parameters are not exactly {', '.join(PARAMETERS)}, each once"
        )
    raw: dict[str, str] = dict(pairs)
    quoted = {name: raw[name][1:-1] for name in ("nonce", "keyid", "alg") if raw[name][0] == '"'}
    if len(quoted) < len(PARAMETERS) - 1:
        raise words.malformed_error("nonce, keyid and alg must be strings")
    if quoted["alg"] != "ed25519":
        raise words.refusal('uses an unknown algorithm; this node supports only "ed25519"')
    if not _NONCE.fullmatch(quoted["nonce"]) or not _CREATED.fullmatch(raw["created"]):
        raise words.malformed_error(
            "created is not a time in seconds, or nonce not 16 to 32 characters"
        )
    return quoted | {"created": raw["created"]}


def _answer_base(status: int, digest: str, asked: Asked | None, signed_as: str) -> bytes:
    """Return the bytes of an answer to sign (RFC 9421, section 2.5)."""
    lines = [f'"@status": {status}', f'"content-digest": {digest}']
    if asked is not None:
        path, _, query = asked.target.partition("?")
        lines += [
            f'"@method";req: {asked.method}',
            f'"@path";req: {path}',
            f'"@query";req: ?{query}',
        ]
    return "\n".join([*lines, f'"@signature-params": {signed_as}']).encode("latin-1", "replace")


def _signature_base(method: str, target: str, digest: str, to: str, signed_as: str) -> bytes:
    """Return the bytes of a request to sign (RFC 9421, section 2.5)."""
    path, _, query = target.partition("?")
    return (
        f'"@method": {method}\n'
        f'"@path": {path}\n'
        f'"@query": ?{query}\n'
        f'"content-digest": {digest}\n'
        f'"parley-to": {to}\n'
        f'"@signature-params": {signed_as}'
    ).encode("ascii")


def _target_of(url: str) -> str:
    """Return path and query of an absolute URL, as an HTTP client sends them."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    absolute = parts.scheme and parts.netloc and not parts.fragment
    # urlsplit silently drops tabs and line ends, so check the whole URL, too.
    if not absolute or not _TARGET.fullmatch("/" + url) or not _TARGET.fullmatch(target):
        msg = "the URL is not absolute and percent-encoded, or has a fragment"
        raise ValueError(msg)
    return target


def _is_canonical(text: str) -> bool:
    """Return whether base64 has its canonical form: unused bits of the last character are zero."""
    return base64.b64encode(base64.b64decode(text)).decode("ascii") == text
