"""The client for other nodes: signed requests under ``/v1/participant/``.

One session keeps connections open; each request has a timeout. Nothing can be sent to a node
without a URL, so the same request, signed, is left for it to fetch (``mailboxes.py``). Answers
over https go to whoever proves to have the node's key, or is who the URL names by a public
authority; a node that is known by https is never asked by http. Answers
are parsed like anything from outside: an invalid answer is :class:`PeerAnswered`, no answer is
:class:`PeerUnreachable`, and a problem document is raised as the error it describes, or as
:class:`PeerFailed` if the other host is at fault.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import aiohttp
from pydantic import ValidationError

from node.client.answers import Answer as HttpAnswer
from node.client.causes import cause_of
from node.client.mailboxes import Carry, MailboxOwner
from node.model import times
from node.model.errors import (
    HostError,
    NotAuthenticated,
    NotFound,
    ParleyError,
    PeerAnswered,
    PeerFailed,
    PeerUnreachable,
    TooLarge,
    UnknownToPeer,
)
from node.model.exchangestate import NegotiationState
from node.model.features import Feature, has_feature
from node.model.loopback import is_exposed
from node.model.reasons import keeps_no_resources
from node.model.secrets import sealed_texts
from node.model.wire.checks import (
    Diagnosis,
    PeerCheckRequest,
    PeerFacts,
    ProbeOffer,
    ProbeRequest,
)
from node.model.wire.comparisons import NodeComparison
from node.model.wire.fields import Document
from node.model.wire.host_limits import GrantedLimits
from node.model.wire.impacts import Impact, ImpactRequest
from node.model.wire.keys import RevokedKeys
from node.model.wire.nodes import NodeCard
from node.model.wire.participants import (
    BATCH_ITEMS_MAX,
    MESSAGE_WEIGHT_MAX,
    BatchReplies,
    BookedRun,
    CommitAnswer,
    CommitRequest,
    ConfirmationAnswer,
    ConfirmationRequest,
    DecisionAnswer,
    Differences,
    DigestRequest,
    ExchangeHold,
    FreedTime,
    HoldAnswer,
    HoldRequest,
    IntervalsMessage,
    Introduction,
    IntroductionAnswer,
    PartMessage,
    Proposal,
    ProposalRequest,
    Release,
    Ruling,
    RunEnd,
    TaskEnd,
)
from node.model.wire.problems import MEDIA_TYPE, Problem, peer_error_of
from node.model.wire.shared_campaigns import CampaignUse, CampaignUseRequest
from node.model.wire.work import ForwardedQuestion, Question, Reply, WorkRequest, WorkResponse
from node.runtime import tracing
from node.runtime.batching import Batcher
from node.trust.identities import fingerprint
from node.trust.lineage import Lineage
from node.trust.sealing import SPEC, SealingKey
from node.trust.signatures import NONCE_HEADER, WANTS_BOUND, Asked, check_answer, signed_at
from node.trust.signer import Signer
from node.trust.tls import TlsOptions, pinned_options, public

Answer = TypeVar("Answer", bound=Document)

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ANSWER_BYTES_MAX = 8_000_000
_MESSAGES_AT_ONCE = 2
_INTRODUCTIONS_LENGTH = 1_000_000
"""Maximum length of several introductions in one message; a single one is much shorter."""
_NOWHERE = "http://node.invalid"
"""The placeholder URL of a node without one; only path and query are signed."""
_COMPARISON_S = 15.0
"""Extra time in seconds in which the other node compares: it asks this one in its turn."""
_CHECK_S = 18.0
"""Extra time in seconds in which the other node checks the way to a third one."""
SAME_TIME = 30 * times.SECOND
"""Difference up to which another node's clock confirms this one's; wrong ones are off by hours."""
_ERRAND_S = 2.0
"""Extra time in seconds for a forwarded question to travel through this node's own API."""


class KnownKeys(Protocol):
    """The keys of other nodes, as far as they are known here."""

    def keys(self, identity: str) -> tuple[str, ...]:
        """Return the keys of a node that count now."""
        ...

    async def admit(self, lineage: Lineage) -> None:
        """Check that a node with the last key of this lineage is believed.

        :raises NotAuthenticated: it is not.
        """
        ...


class NoKnownKeys:
    """Knows nothing but the identities, and believes what leads on from them."""

    def keys(self, identity: str) -> tuple[str, ...]:
        """Return the only key that is known without a database: the first one of an identity."""
        return (identity,)

    async def admit(self, lineage: Lineage) -> None:
        """Accept every lineage."""


class Peers:
    """Sends signed requests to other nodes."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        signer: Signer,
        timeout_s: float,
        added_as: str = "URL",
        sealing: SealingKey | None = None,
    ) -> None:
        """Use this session, which the caller closes; others add this node as ``added_as``.

        ``sealing`` is the key of the secrets that participants are told.
        """
        self._sealing = sealing
        self._session = session
        self.signer = signer
        self._timeout_s = timeout_s
        self._added_as = added_as
        self._batches: dict[str, PeerBatches] = {}
        self._by_name: set[str] = set()
        self.carry: Carry = _refuse_to_carry
        self.known_keys: KnownKeys = NoKnownKeys()

    def with_session(self, session: aiohttp.ClientSession) -> Peers:
        """Return a client of the same node that sends by another session."""
        other = Peers(session, self.signer, self._timeout_s, self._added_as, self._sealing)
        other.known_keys = self.known_keys
        return other

    def batches_of(self, peer: Peer) -> PeerBatches:
        """Return the batches of requests to this node."""
        batches = self._batches.get(peer.identity)
        if batches is None or batches.url != peer.url:
            batches = self._batches[peer.identity] = PeerBatches(peer)
        return batches

    async def card(self, url: str, identity: str | None = None) -> NodeCard:
        """Return the card of the node at this URL, which is signed with its key."""
        return (await self.card_and_lineage(url, identity))[0]

    async def card_and_lineage(
        self, url: str, identity: str | None = None
    ) -> tuple[NodeCard, Lineage]:
        """Return the card of the node at this URL, and how its identity leads to its key.

        Over https without an ``identity``, the name in the URL has to be proven.

        :raises PeerUnreachable: there is no answer.
        :raises PeerAnswered: the answer is not from a node, or not signed with the card's key.
        """
        card, lineage, _ = await self._card(url, identity)
        return card, lineage

    async def lives_at(self, url: str, identity: str) -> bool | None:
        """Return whether a node answers at a URL with its key; None if that cannot be told.

        False: nothing listens there, or another node. Whoever is only slow may live.
        """
        card = await self._card_at(url, identity)
        return card.identity == identity if isinstance(card, NodeCard) else card

    async def is_at(self, url: str, identity: str) -> bool | None:
        """Return whether a node answers at a URL with its key, and calls itself by that URL.

        None if that cannot be told, as for :meth:`lives_at`.
        """
        card = await self._card_at(url, identity)
        return (card.identity, card.url) == (identity, url) if isinstance(card, NodeCard) else card

    async def _card_at(self, url: str, identity: str) -> NodeCard | Literal[False] | None:
        """Return the card of who answers at a URL; False if nothing listens there, None if slow."""
        try:
            return await self.card(url, identity)
        except PeerUnreachable as error:
            cause = error.__cause__
            refused = isinstance(cause, aiohttp.ClientConnectorError) and isinstance(
                cause.os_error, ConnectionRefusedError
            )
            return False if refused else None
        except ParleyError:
            return None

    async def has_time(self, url: str, identity: str, now: Callable[[], int]) -> bool:
        """Return whether a node answers with its key, and has the time of this clock."""
        try:
            card, _, answer = await self._card(url, identity)
        except ParleyError:
            return False
        off = now() - signed_at(answer.headers)
        return card.identity == identity and abs(off) <= SAME_TIME

    async def _card(self, url: str, identity: str | None) -> tuple[NodeCard, Lineage, HttpAnswer]:
        address, nonce = f"{url.rstrip('/')}/v1/nodes/self", self.signer.nonce()
        try:
            answer = await self._request(
                "GET", address, b"", {NONCE_HEADER: nonce}, name=url, identity=identity
            )
        except TooLarge as error:
            raise PeerAnswered(error.detail) from error
        card = _parsed_answer(NodeCard, self._content_of(answer, url), url)
        asked, binds = Asked.of("GET", address), has_feature(card.attributes, Feature.BOUND_ANSWERS)
        lineage = await self._check(answer, card.identity, nonce, url, asked=asked, binds=binds)
        return card, lineage, answer

    async def _check(
        self,
        answer: HttpAnswer,
        identity: str,
        nonce: str,
        name: str,
        *,
        asked: Asked,
        binds: bool,
    ) -> Lineage:
        """Check that a node gave this answer to the request with this nonce.

        :raises PeerAnswered: it did not.
        """
        try:
            lineage = check_answer(
                identity,
                nonce,
                answer.status,
                answer.headers,
                answer.raw,
                asked=asked,
                binds=binds,
            )
            await self.known_keys.admit(lineage)
        except NotAuthenticated as error:
            msg = f"{name} gave an answer that cannot be trusted: {error.detail}"
            raise PeerAnswered(msg) from error
        return lineage

    def with_secrets(self, peer: Peer, introduction: Introduction) -> Introduction:
        """Return an introduction with the secrets of its spec, which this participant's tool needs.

        Who only keeps resources needs none.

        One that cannot be opened here is left out; the participant says so when it measures. They
        are not sent in clear to another host.
        """
        sealed = sorted(set(sealed_texts(introduction.spec)))
        if not sealed or self._sealing is None or introduction.participant is None:
            return introduction
        if peer.url is not None and is_exposed(peer.url):
            raise PeerFailed(
                f"{peer.name} is reached by http, and the task has secrets, which are sent over "
                f"TLS only; add it by https, or name a secret that the owner of {peer.name} stored"
            )
        texts = {}
        for text in sealed:
            with suppress(HostError):
                texts[text] = self._sealing.open(text, SPEC)
        return introduction.model_copy(update={"secrets": texts})

    def client_of(
        self, identity: str, name: str, url: str | None, attributes: Mapping[str, Any] | None = None
    ) -> Peer:
        """Return the client of another node; with ``url`` None its requests wait for it to fetch.

        The ``attributes`` of its card say what its version understands.
        """
        return Peer(self, identity, name, url and url.rstrip("/"), attributes)

    async def send(
        self, peer: Peer, method: str, path: str, document: Document | None, wait_s: float = 0.0
    ) -> bytes:
        """Send a signed request and return the body of the answer.

        A rejected signature, which may have become stale, is made anew once. ``wait_s`` is how
        long the other node may take beyond the timeout.
        """
        body = b"" if document is None else document.model_dump_json().encode()
        return await self._send_signed(peer, method, path, body, wait_s)

    async def post(self, peer: Peer, path: str, body: bytes) -> bytes:
        """Send a signed POST with a serialised body, and return the body of the answer."""
        return await self._send_signed(peer, "POST", path, body)

    async def _send_signed(
        self, peer: Peer, method: str, path: str, body: bytes, wait_s: float = 0.0
    ) -> bytes:
        url = f"{peer.url or _NOWHERE}/v1/participant/{path}"

        async def send_once() -> bytes:
            nonce = self.signer.nonce()
            headers = self.signer.request(method, url, body, nonce=nonce, to=peer.identity)
            if peer.url is None:
                return await self._leave_in_mailbox(peer, method, url, body, headers)
            answer = await self._request(
                method, url, body, headers, name=peer.name, wait_s=wait_s, identity=peer.identity
            )
            return await self._trusted_body(answer, peer, nonce, Asked.of(method, url))

        try:
            return await send_once()
        except NotAuthenticated:
            return await send_once()

    async def _leave_in_mailbox(
        self, peer: Peer, method: str, url: str, body: bytes, headers: dict[str, str]
    ) -> bytes:
        question = Question.model_validate(
            {
                "method": method,
                "path": url.removeprefix(_NOWHERE),
                "headers": headers,
                "body": body.decode(),
            }
        )
        reply = await self.carry(peer, question)
        body_of_reply = reply.body.encode()
        if reply.status < 300:  # noqa: PLR2004 - HTTP's own border
            return body_of_reply
        raise self._error_of(_parsed_answer(Problem, body_of_reply, peer.name), peer.name)

    async def fetch(self, peer: Peer, request: WorkRequest) -> WorkResponse:
        """Fetch the requests that wait there for this node, and deliver answers to earlier ones."""
        wait_s = request.wait / times.SECOND
        return _parsed_answer(
            WorkResponse, await self.send(peer, "POST", "work", request, wait_s), peer.name
        )

    async def forward_question(self, url: str, question: Question) -> Reply:
        """Forward a fetched question to the API at this URL, which is this node's own.

        :raises PeerUnreachable: it does not answer.
        """
        body, headers = question.body.encode(), question.headers
        answer = await self._request(question.method, f"{url}{question.path}", body, headers)
        return Reply(status=answer.status, body=answer.raw.decode("utf-8", "replace"))

    async def _trusted_body(
        self, answer: HttpAnswer, peer: Peer, nonce: str, asked: Asked
    ) -> bytes:
        """Return the body of an answer that the node signed, or raise the error that it describes.

        Only what hinders the question itself may come unsigned: the node does not know this one or
        its request, or something in between answers.
        """
        try:
            await self._check(
                answer, peer.identity, nonce, peer.name, asked=asked, binds=peer.binds_answers
            )
        except PeerAnswered as unsigned:
            try:
                self._content_of(answer, peer.name)
            except (NotAuthenticated, UnknownToPeer, PeerAnswered):
                raise
            except ParleyError as error:
                msg = f"{peer.name} cannot do it: {error.detail}"
                raise PeerFailed(msg) from unsigned
            raise
        return self._content_of(answer, peer.name)

    def _content_of(self, answer: HttpAnswer, name: str) -> bytes:
        """Return the body of a successful answer, or raise the error that the answer describes."""
        if answer.status < 300:  # noqa: PLR2004 - HTTP's own border
            return answer.raw
        if answer.content_type == MEDIA_TYPE:
            raise self._error_of(_parsed_answer(Problem, answer.raw, name), name)
        msg = f"{name} answered {answer.status} without a reason; is it a node?"
        raise PeerAnswered(msg)

    def _error_of(self, problem: Problem, name: str) -> ParleyError:
        """Return the error with which a node answered; say how it gets to know this one."""
        error = peer_error_of(problem, name)
        if isinstance(error, UnknownToPeer):
            how = f"on {name}, its owner adds it: parley node add {self._added_as}"
            return UnknownToPeer(f"{error.detail}; {how}")
        return error

    async def _request(  # noqa: PLR0913 - what a request has, and how long and from whom
        self,
        method: str,
        url: str,
        body: bytes,
        headers: dict[str, str],
        *,
        name: str | None = None,
        wait_s: float = 0.0,
        identity: str | None = None,
    ) -> HttpAnswer:
        """Send a request; over https only to who is proven to be the node, or to have its name."""
        # No proxy is to compress the answer: its digest is that of the bytes as the node sent them.
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **headers}
        headers |= WANTS_BOUND
        limit = aiohttp.ClientTimeout(total=self._timeout_s + wait_s, sock_connect=self._timeout_s)

        async def send(tls: TlsOptions) -> HttpAnswer:
            async with self._session.request(
                method,
                url,
                data=body or None,
                headers={**headers, **tracing.headers()},
                timeout=limit,
                allow_redirects=False,
                **tls,
            ) as response:
                body_of_answer = await _read(response)
                return HttpAnswer(
                    url,
                    response.status,
                    response.reason or "",
                    response.content_type,
                    body_of_answer,
                    response.headers,
                )

        try:
            with tracing.span(
                f"{method} {_route_of(url)}", tracing.SpanKind.CLIENT, peer=name or url
            ):
                if not url.startswith("https:"):
                    return await send({})
                return await self._send_secured(send, name or url, identity)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            late = isinstance(error, TimeoutError)
            cause = f"no answer within {self._timeout_s:g} s" if late else cause_of(error)
            msg = f"{name or url} cannot be reached: {cause}"
            raise PeerUnreachable(msg) from error

    async def _send_secured(
        self, send: Callable[[TlsOptions], Awaitable[HttpAnswer]], name: str, identity: str | None
    ) -> HttpAnswer:
        """Send to who has the key of the node, or else its name; first as it was the last time.

        Nothing is sent before one of the two is proven.

        :raises PeerUnreachable: neither is.
        """
        if identity is None:
            try:
                return await send(public())
            except aiohttp.ClientConnectorCertificateError as error:
                msg = (
                    f"{name} cannot be trusted without its key, because its certificate is not "
                    f"publicly valid ({cause_of(error)}); get its identity from its owner "
                    "('parley node show' there) and give it: --identity ed25519:KEY"
                )
                raise PeerUnreachable(msg) from error
        by_name = identity in self._by_name
        by_key = pinned_options(*self.known_keys.keys(identity))
        ways = [public(), by_key] if by_name else [by_key, public()]
        try:
            return await send(ways[0])
        except aiohttp.ClientSSLError as first:
            try:
                answer = await send(ways[1])
            except aiohttp.ClientConnectorCertificateError as second:
                of_key, of_name = (second, first) if by_name else (first, second)
                msg = (
                    f"{name} cannot be reached: its certificate is not signed with the key "
                    f"{fingerprint(identity)} that is known of it ({cause_of(of_key)}), and its "
                    f"name is not publicly certified ({cause_of(of_name)})"
                )
                raise PeerUnreachable(msg) from second
        (self._by_name.discard if by_name else self._by_name.add)(identity)
        return answer


class PeerBatches:
    """The requests to one other node that travel in batches, because many tasks plan with it."""

    def __init__(self, peer: Peer) -> None:
        """Create empty batches."""
        self.url = peer.url
        self.proposals: Batcher[ProposalRequest, Proposal] = Batcher(
            partial(peer.ask_together, "proposals", BatchReplies[Proposal]),
            weight=lambda asked: len(asked.windows),
            weight_max=MESSAGE_WEIGHT_MAX,
            items_max=BATCH_ITEMS_MAX,
            at_once=_MESSAGES_AT_ONCE,
        )
        self.holds: Batcher[ExchangeHold, HoldAnswer] = Batcher(
            partial(peer.ask_together, "holds", BatchReplies[HoldAnswer]),
            weight=lambda asked: len(asked.hold.runs),
            weight_max=MESSAGE_WEIGHT_MAX,
            items_max=BATCH_ITEMS_MAX,
            at_once=_MESSAGES_AT_ONCE,
        )
        self.introductions: Batcher[Introduction, IntroductionAnswer] = Batcher(
            partial(peer.ask_together, "introductions", BatchReplies[IntroductionAnswer]),
            weight=lambda asked: len(asked.model_dump_json()),
            weight_max=_INTRODUCTIONS_LENGTH,
            items_max=BATCH_ITEMS_MAX,
            at_once=_MESSAGES_AT_ONCE,
        )
        self.rulings: Batcher[Ruling, CommitAnswer] = Batcher(
            partial(peer.ask_together, "rulings", BatchReplies[CommitAnswer]),
            weight=lambda asked: len(asked.commit.runs) if asked.commit else 1,
            weight_max=MESSAGE_WEIGHT_MAX,
            items_max=BATCH_ITEMS_MAX,
            at_once=_MESSAGES_AT_ONCE,
        )


class Peer:
    """A client of one other node: requests of a lead to participants, and the other way round."""

    binding = False

    def __init__(
        self,
        peers: Peers,
        identity: str,
        name: str,
        url: str | None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Use :meth:`Peers.client_of` instead."""
        self._introduces_together = has_feature(attributes or {}, Feature.INTRODUCTIONS)
        self._leaves_out = has_feature(attributes or {}, Feature.LEAVING_OUT)
        self._tells_quotas = has_feature(attributes or {}, Feature.QUOTAS)
        self._keeps_resources = has_feature(attributes or {}, Feature.RESOURCES)
        self._shares_campaigns = has_feature(attributes or {}, Feature.SHARED_CAMPAIGNS)
        self._tries_again = has_feature(attributes or {}, Feature.FURTHER_ATTEMPTS)
        self._takes_failed_results = has_feature(attributes or {}, Feature.FAILED_RESULTS)
        self.binds_answers = has_feature(attributes or {}, Feature.BOUND_ANSWERS)
        self.identity = identity
        self.name = name
        self.url = url
        self._peers = peers

    async def _ask(
        self, kind: type[Answer], method: str, path: str, document: Document | None = None
    ) -> Answer:
        return _parsed_answer(kind, await self._peers.send(self, method, path, document), self.name)

    async def introduce(self, introduction: Introduction) -> IntroductionAnswer:
        """Introduce a task."""
        if introduction.keepers and not self._keeps_resources:
            return IntroductionAnswer(accepted=False, reason=keeps_no_resources())
        introduction = self._peers.with_secrets(self, introduction)
        if self._introduces_together:
            return await self._peers.batches_of(self).introductions.ask(introduction)
        return await self._ask(
            IntroductionAnswer, "PUT", f"tasks/{introduction.task}", introduction
        )

    async def consider(self, introduction: Introduction) -> IntroductionAnswer:
        """Ask whether it would accept a task."""
        if introduction.keepers and not self._keeps_resources:
            return IntroductionAnswer(accepted=False, reason=keeps_no_resources())
        introduction = self._peers.with_secrets(self, introduction)
        if not self._tells_quotas:
            introduction = introduction.model_copy(update={"rooms": None})
        return await self._ask(IntroductionAnswer, "POST", "considerations", introduction)

    async def limits(self) -> GrantedLimits:
        """Ask what its limits allow this node, and what is left."""
        return await self._ask(GrantedLimits, "GET", "limits")

    async def campaign_use(self, request: CampaignUseRequest) -> CampaignUse:
        """Ask for what campaigns that both share have used there.

        :raises PeerFailed: its version shares no campaigns.
        """
        if not self._shares_campaigns:
            msg = f"{self.name} runs a version that shares no campaigns; upgrade it"
            raise PeerFailed(msg)
        return await self._ask(CampaignUse, "POST", "campaigns/uses", request)

    async def revoke(self, statements: Sequence[str]) -> None:
        """Tell it which keys are revoked."""
        message = RevokedKeys(statements=tuple(statements))
        await self._peers.send(self, "POST", "revocations", message)

    async def check(self, towards: str) -> Diagnosis:
        """Have the way from there to a node checked."""
        request = PeerCheckRequest(towards=towards)
        answer = await self._peers.send(self, "POST", "checks", request, _CHECK_S)
        return _parsed_answer(Diagnosis, answer, self.name)

    async def facts(self) -> PeerFacts:
        """Ask for the state of its host, and for its clock."""
        return await self._ask(PeerFacts, "GET", "facts")

    async def probe(self, request: ProbeRequest) -> ProbeOffer:
        """Have it answer at a port of its tools for some seconds."""
        return await self._ask(ProbeOffer, "POST", "probes", request)

    async def impact(self, request: ImpactRequest) -> Impact:
        """Ask which runs would give way to these, and how full the node would be."""
        if not self._leaves_out:
            request = request.model_copy(update={"leaving_out": None})
        if not self._tells_quotas:
            request = request.model_copy(update={"introduction": None})
        return await self._ask(Impact, "POST", "outlooks", request)

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Ask for the free ranges inside the windows of a request."""
        if not self._leaves_out and request.leaving_out is not None:
            request = request.model_copy(update={"leaving_out": None})
        if not self._tells_quotas:
            unknown = dict.fromkeys(("quotas", "introduction", "preview", "partly"))
            request = request.model_copy(update=unknown)
        return await self._peers.batches_of(self).proposals.ask(request)

    async def hold(self, exchange: UUID, request: HoldRequest) -> HoldAnswer:
        """Hold runs until the lead decides."""
        if not self._tries_again and any(run.again for run in request.runs):
            runs = tuple(run.model_copy(update={"again": False}) for run in request.runs)
            request = request.model_copy(update={"runs": runs})
        item = ExchangeHold(exchange=exchange, hold=request)
        return await self._peers.batches_of(self).holds.ask(item)

    async def commit(self, exchange: UUID, request: CommitRequest) -> CommitAnswer:
        """Commit these runs of an exchange, and release its others."""
        ruling = Ruling(exchange=exchange, commit=request)
        return await self._peers.batches_of(self).rulings.ask(ruling)

    async def release(self, exchange: UUID, release: Release) -> None:
        """Release all runs of a hold."""
        ruling = Ruling(exchange=exchange, release=release)
        await self._peers.batches_of(self).rulings.ask(ruling)

    async def ask_together(
        self, path: str, answered: type[BatchReplies[Answer]], items: Sequence[Document]
    ) -> list[Answer | ParleyError]:
        """Send several questions in one message; return the answer or the error of each."""
        body = b'{"items":[' + b",".join(i.model_dump_json().encode() for i in items) + b"]}"
        replies = _parsed_answer(answered, await self._peers.post(self, path, body), self.name)
        if len(replies.items) != len(items):
            msg = f"{self.name} answered {len(replies.items)} of {len(items)} questions"
            raise PeerAnswered(msg)
        return [
            reply.answer if reply.answer is not None else _refusal(reply.problem, self.name)
            for reply in replies.items
        ]

    async def decision(self, exchange: UUID) -> DecisionAnswer:
        """Ask the lead for its decision on an exchange; one that it does not know is aborted."""
        try:
            return await self._ask(DecisionAnswer, "GET", f"exchanges/{exchange}")
        except NotFound:
            return DecisionAnswer(state=NegotiationState.ABORTED)

    async def booked_run(self, run: UUID) -> BookedRun:
        """Ask another participant for a run as it is booked there."""
        return await self._ask(BookedRun, "GET", f"runs/{run}")

    async def end_run(self, end: RunEnd) -> None:
        """Report to the other participants or the lead that a run is over."""
        await self._peers.send(self, "POST", "runs/ends", end)

    async def end_task(self, end: TaskEnd) -> None:
        """Report that a task is over."""
        await self._peers.send(self, "POST", "tasks/ends", end)

    async def confirm(self, request: ConfirmationRequest) -> ConfirmationAnswer:
        """Ask the lead which of its tasks are still open."""
        return await self._ask(ConfirmationAnswer, "POST", "tasks/confirmations", request)

    async def report_freed_time(self, message: FreedTime) -> None:
        """Report to a lead that time for its tasks has become free."""
        await self._peers.send(self, "POST", "tasks/freed", message)

    async def send_intervals(self, intervals: IntervalsMessage) -> None:
        """Send this node's share of some intervals to the lead."""
        await self._peers.send(self, "POST", "intervals", intervals)

    async def send_part(self, part: PartMessage) -> None:
        """Send this node's part to the lead, unsigned if it has to be shortened for that lead."""
        if part.reason and part.result is not None and not self._takes_failed_results:
            part = part.model_copy(update={"result": None, "signature": None})
        await self._peers.send(self, "POST", "parts", part)

    async def compare(self, request: DigestRequest) -> Differences:
        """Compare what both sides have of open tasks and future runs."""
        return await self._ask(Differences, "POST", "digests", request)

    async def compare_with_sender(self) -> NodeComparison:
        """Have the other node compare what it leads, and what it has of this node's tasks."""
        answer = await self._peers.send(self, "POST", "comparisons", None, _COMPARISON_S)
        return _parsed_answer(NodeComparison, answer, self.name)


def via_own_node(peers: Peers, own: Peer) -> Carry:
    """Return a function that hands questions for nodes in pull mode to the own node's service.

    Only that process has the mailboxes from which such nodes fetch.
    """

    async def carry(peer: MailboxOwner, question: Question) -> Reply:
        errand = ForwardedQuestion(node=peer.identity, name=peer.name, question=question)
        reply = await peers.send(own, "POST", "errands", errand, _ERRAND_S)
        return _parsed_answer(Reply, reply, own.name)

    return carry


async def _refuse_to_carry(peer: MailboxOwner, _: Question) -> Reply:
    msg = f"{peer.name} cannot be reached: it has no URL"
    raise PeerUnreachable(msg)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Read the whole body; a single ``read(n)`` returns only what has arrived so far.

    :raises TooLarge: it is longer than any sensible answer; fewer items may get a shorter one.
    """
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _ANSWER_BYTES_MAX:
            msg = f"{response.url.host} answered with more than {_ANSWER_BYTES_MAX} bytes"
            raise TooLarge(msg)
    return bytes(body)


def _refusal(problem: Problem | None, name: str) -> ParleyError:
    if problem is None:
        return PeerAnswered(f"{name} sent neither an answer nor a reason")
    return peer_error_of(problem, name)


def _parsed_answer(kind: type[Answer], body: bytes, name: str) -> Answer:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        msg = f"{name} sent an answer that cannot be parsed: {str(error).splitlines()[0]}"
        raise PeerAnswered(msg) from error


def _route_of(url: str) -> str:
    """Return the path of a URL without the ids in it."""
    return _ID.sub("{id}", urlsplit(url).path)
