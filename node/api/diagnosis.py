"""Routes that check this node, and the way between two nodes."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.routing import NODE, Route
from node.model.diagnosis import PROBE_TIME
from node.model.wire.checks import (
    Diagnosis,
    DiagnosisAnswer,
    DiagnosisRequest,
    PeerCheckRequest,
    PeerFacts,
    ProbeOffer,
    ProbeRequest,
)
from node.operation.pair import PairChecker, facts_of

CHECKER: web.AppKey[PairChecker] = web.AppKey("checker")
"""The checks of an application's node."""


async def check(request: web.Request) -> web.StreamResponse:
    """Check this node, or the way between two nodes; nothing is booked."""
    wanted = requests.document(request, DiagnosisRequest)
    return responses.document_response(await request.app[CHECKER].diagnose(wanted))


async def check_for_peer(request: web.Request) -> web.StreamResponse:
    """Check the way from here to a node that is known here."""
    wanted = requests.document(request, PeerCheckRequest)
    return responses.document_response(await request.app[CHECKER].diagnose_for_peer(wanted.towards))


async def facts(request: web.Request) -> web.StreamResponse:
    """The state of this host, as far as others need it, and its clock."""
    node = request.app[NODE]
    return responses.document_response(await facts_of(node, node.clock.now()))


async def probe(request: web.Request) -> web.StreamResponse:
    """Answer for some seconds at a port of the tools, so that the sender can try it."""
    wanted = requests.document(request, ProbeRequest)
    port = await request.app[NODE].port_probes.open(wanted.nonce)
    return responses.document_response(ProbeOffer(port=port, lasts=PROBE_TIME))


ROUTES = (
    Route(
        "POST",
        "/v1/checks",
        check,
        "Check this node, or the way between two nodes; nothing is booked",
        # It needs a token, because it sends packets and makes other nodes work.
        DiagnosisRequest,
        DiagnosisAnswer,
    ),
    Route(
        "POST",
        "/v1/participant/checks",
        check_for_peer,
        "Have the way to a node checked",
        PeerCheckRequest,
        Diagnosis,
        cost=20,
    ),
    Route(
        "GET",
        "/v1/participant/facts",
        facts,
        "Ask for the state of the host",
        answer=PeerFacts,
        cost=20,
    ),
    Route(
        "POST",
        "/v1/participant/probes",
        probe,
        "Have a port of the tools answered",
        ProbeRequest,
        ProbeOffer,
        cost=5,
    ),
)
