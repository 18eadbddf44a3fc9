"""Traces of three nodes, at a receiver of OTLP: a run is one trace, whoever did what for it."""

from __future__ import annotations

import asyncio
import gzip
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from node.cli.lab.nodes import NodePlan, node_command
from node.cli.lab.supervisor import Lab
from node.runtime.tracing import HEADER
from tests.acceptance.outsider import Outsider
from tests.integration.host_leftovers import nothing_left
from tests.support.loopback import serving
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]

CALLER = "1" * 16
"""The span of who asks a node with a trace."""
SERVER = 2
"""The kind of a span that serves a request."""


@dataclass
class Receiver:
    """The spans that were received, by trace, each with the name of the node that sent it."""

    url: str = ""
    spans: dict[str, list[tuple[str, Span]]] = field(default_factory=lambda: defaultdict(list))
    came: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, request: web.Request) -> web.Response:
        """Keep the spans of a request."""
        body = await request.read()  # aiohttp has decompressed it
        asked = ExportTraceServiceRequest.FromString(
            gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
        )
        for sent in asked.resource_spans:
            names = {each.key: each.value.string_value for each in sent.resource.attributes}
            assert names["service.name"] == "parley"
            for span in sent.scope_spans[0].spans:
                self.spans[span.trace_id.hex()].append((names["host.name"], span))
        self.came.set()
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")

    async def until(self, trace: str, *wanted: tuple[str, str]) -> list[tuple[str, Span]]:
        """Wait until a trace has these spans, by node and name, and those above; return all."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._has(trace, wanted):
                self.came.clear()
                await self.came.wait()
        return self.spans[trace]

    def _has(self, trace: str, wanted: tuple[tuple[str, str], ...]) -> bool:
        there = {(node, span.name) for node, span in self.spans[trace]}
        ids = {span.span_id for _, span in self.spans[trace]}
        above = {span.parent_span_id for _, span in self.spans[trace]}
        return there.issuperset(wanted) and above <= {*ids, b"", bytes.fromhex(CALLER)}


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    """Serve a receiver on loopback."""
    made = Receiver()
    app = web.Application()
    app.router.add_post("/v1/traces", made.take)
    async with serving(app) as url:
        made.url = f"{url}/v1/traces"
        yield made


def _command(plan: NodePlan, url: str) -> list[str]:
    return ["env", f"PARLEY_TRACES_ENDPOINT={url}", *node_command(plan)]


@pytest.mark.nightly
async def test_a_run_is_one_trace_across_three_nodes() -> None:
    """A run's trace has what each node measured and sent; a request's has what it caused."""
    with nothing_left():
        async with (
            receiver() as taken,
            Lab(3, command=partial(_command, url=taken.url)) as lab,
            aiohttp.ClientSession() as session,
        ):
            a, b, c = (Outsider(**asdict(node), session=session) for node in lab.nodes)
            run = await a.finished(await a.run(await a.create("idle", a, b, c)))
            trace = run["id"].replace("-", "")
            spans = await taken.until(
                trace,
                *((node, "measure") for node in "abc"),
                *((node, "deliver") for node in "bc"),
                ("a", "run"),
                ("a", "POST /v1/participant/parts"),
            )
            by_id = {span.span_id: (node, span) for node, span in spans}
            root = next(span for node, span in spans if span.name == "run")
            assert (root.parent_span_id, len(by_id)) == (b"", len(spans))
            for node, span in spans:
                above = span
                while above.parent_span_id:
                    above = by_id[above.parent_span_id][1]
                assert above is root, (node, span.name)
            served = [span for node, span in spans if span.name == "POST /v1/participant/parts"]
            senders = {by_id[span.parent_span_id][0] for span in served if span.kind == SERVER}
            assert senders == {"b", "c"}
            await _until_asked_elsewhere(taken, a, b)


async def _until_asked_elsewhere(taken: Receiver, a: Outsider, b: Outsider) -> None:
    """Wait for the trace of a preview that one node was asked for, and asked another one for."""
    trace = "7" * 32
    test = {"type": "idle", "spec": {"participants": [b.name]}}
    answer = await a.ask("POST", "/v1/plans", {"test": test}, {HEADER: f"00-{trace}-{CALLER}-01"})
    assert answer.status == 200, answer
    spans = await taken.until(
        trace, ("a", "POST /v1/plans"), ("b", "POST /v1/participant/proposals")
    )
    asked = next(span for node, span in spans if span.name == "POST /v1/plans")
    assert asked.parent_span_id.hex() == CALLER
