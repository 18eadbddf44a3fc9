"""Examples of documents, for the OpenAPI document: what a user posts, and what the API answers.

Every one is valid by its model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from node.model.wire.alerts import AlertChangeDocument
from node.model.wire.archives import ArchiveDocument, ArchivePatch, RetryRequest
from node.model.wire.campaigns import CampaignDocument, CampaignPatch
from node.model.wire.checks import DiagnosisRequest
from node.model.wire.directories import DirectoryRequest, NodeDirectory
from node.model.wire.fields import Document
from node.model.wire.host_limits import LimitTrialRequest
from node.model.wire.keys import Revocation, RevocationRequest
from node.model.wire.meshes import MeshFile
from node.model.wire.nodes import ClockState, Node, NodeAddition, NodeCard, NodePatch
from node.model.wire.plans import PlanRequest
from node.model.wire.policy_plans import PolicyPlanRequest
from node.model.wire.pools import PoolDocument, PoolPatch
from node.model.wire.reservations import ReservationDocument, ReservationPatch
from node.model.wire.runs import Explanation, Run, RunInterval
from node.model.wire.secrets import SecretDocument
from node.model.wire.task_lists import ListedTask, TaskChanges
from node.model.wire.tasks import Task, TaskDocument, TaskPatch
from node.model.wire.tokens import NewToken, Token, TokenRequest
from node.model.wire.webhooks import WebhookDocument

_TASK_ID = "019ac8f0-5b62-7d3e-8f10-7c1e90ab2f61"
_RUN_ID = "2e6c1f4a-93d7-5c0e-a1b4-5f0d7c9be3a2"
_IDENTITY = "ed25519:9rX2m0vQmB3pJc7T1wqYd0aZk5LsHnEoU8fGiRtVxyA"

_RTT = {"type": "rtt", "spec": {"source": "a", "dest": "192.0.2.7", "count": 10}}
_THROUGHPUT = {
    "type": "throughput",
    "spec": {"source": "a", "dest": "b", "duration": "PT10S"},
}
_POSTED = {
    "test": _THROUGHPUT,
    "schedule": {"start": "2026-12-01T00:00:00Z", "repeat": "PT1H", "slip": "PT10M"},
    "priority": 10,
}
_CARD = {
    "identity": _IDENTITY,
    "name": "a",
    "url": "https://a.example:8642",
    "address": "a.example",
    "version": "0.4.0",
    "attributes": {"country": "DE", "cpu_mbps": 10000},
    "lanes": 8,
}
_PARTICIPANT = {
    "node": _IDENTITY,
    "name": "a",
    "url": "https://a.example:8642",
    "address": "a.example",
    "accepted": True,
    "reason": None,
    "tools": ["ping", "fping"],
}
_TOKEN = {
    "id": _TASK_ID,
    "label": "alice",
    "role": "run",
    "created_at": "2026-12-01T00:00:00Z",
    "created_by": "owner",
    "expires_at": "2027-03-01T00:00:00Z",
    "used_at": None,
    "revoked_at": None,
}
_HEADLINE = "rtt  a → 192.0.2.7"
_METRIC = {"name": "rtt_median", "value": 20.4, "unit": "ms", "labels": {}}

EXAMPLES: Mapping[type[Document], Any] = {
    TaskDocument: _POSTED,
    ListedTask: {"test": _RTT, "idempotency_key": "rtt-a-192.0.2.7"},
    TaskChanges: {"change": "pause", "tasks": [_TASK_ID]},
    TaskPatch: {"schedule": {"repeat": "PT30M"}, "priority": 20},
    PlanRequest: {**_POSTED, "runs": 3},
    ReservationDocument: {
        "kind": "maintenance",
        "name": "New network card",
        "schedule": {"start": "2026-12-05T22:00:00Z"},
        "duration": "PT2H",
    },
    ReservationPatch: {"duration": "PT3H"},
    CampaignDocument: {"name": "ops", "weight": 2, "quotas": {"bytes": "50G/P1D"}},
    CampaignPatch: {"weight": 3},
    PoolDocument: {"name": "europe", "match": {"country": ["DE", "FR"]}, "term": "PT6H"},
    PoolPatch: {"match": {"country": ["DE", "FR", "IT"]}},
    PolicyPlanRequest: {"policy": {"set": "shares"}, "hours": 24},
    ArchiveDocument: {
        "name": "collector",
        "archiver": "http",
        "spec": {"url": "https://collector.example/results"},
        "runs": "all",
    },
    ArchivePatch: {"runs": "succeeded"},
    RetryRequest: {"archive": "collector"},
    NodeAddition: {"url": "https://b.example:8642", "identity": _IDENTITY},
    NodePatch: {"attributes": {"country": "DE", "rack": None}},
    DirectoryRequest: {
        "nodes": [{"name": "b", "url": "https://b.example:8642", "identity": _IDENTITY}]
    },
    NodeDirectory: {
        "type": "application/vnd.parley.node-directory+json",
        "version": 1,
        "about": "A directory of nodes that measure with Parley.",
        "made": {"at": "2026-12-01T00:00:00Z", "name": "a", "node": _IDENTITY},
        "nodes": [{"name": "a", "url": "https://a.example:8642", "identity": _IDENTITY}],
        "signature": "eyJhbGciOiJFZDI1NTE5In0.eyJzaGEyNTYiOnt9fQ.AAAA",
    },
    MeshFile: {
        "text": 'name = "lab"\n[tests.rtt]\ntype = "rtt"\n[[measure]]\ntest = "rtt"\n'
        'shape = "full-mesh"\nmembers = ["a", "b"]\n'
    },
    LimitTrialRequest: {"as": "b", "task": {"test": _RTT}},
    DiagnosisRequest: {"from": "b", "to": "c"},
    TokenRequest: {"label": "alice", "role": "run", "expires_in": "P90D"},
    Task: {
        "id": _TASK_ID,
        "headline": _HEADLINE,
        "state": "active",
        "reason": None,
        "waiting": None,
        "revision": 1,
        "paused_at": None,
        "test": _RTT,
        "tool": "ping",
        "tools": [],
        "schedule": {"start": "2026-12-01T00:00:00Z", "repeat": "PT5M", "slip": "PT30S"},
        "priority": 0,
        "scheduling_class": "background",
        "duration": "PT5S",
        "participants": [_PARTICIPANT],
        "lead": "a",
        "led_here": True,
        "campaign": None,
        "reference": None,
        "created_at": "2026-11-30T23:58:12.25Z",
        "ended_at": None,
        "next_run_at": "2026-12-01T00:05:00Z",
        "planned": True,
        "plan_at": "2026-12-01T01:00:00Z",
        "runs": {"finished": 1, "scheduled": 12},
        "requester": "alice",
    },
    Run: {
        "id": _RUN_ID,
        "task": _TASK_ID,
        "headline": _HEADLINE,
        "test": "rtt",
        "tool": "ping",
        "state": "finished",
        "reason": None,
        "scheduling_class": "background",
        "priority": 0,
        "starts_at": "2026-12-01T00:00:00Z",
        "ends_at": "2026-12-01T00:00:05Z",
        "slot": "2026-12-01T00:00:00Z",
        "attempt": 1,
        "participants": ["a"],
        "participant": 0,
        "lead": "a",
        "started_at": "2026-12-01T00:00:00.001Z",
        "finished_at": "2026-12-01T00:00:01.9Z",
        "start_error_ms": 1.0,
        "displaced_by": None,
        "summary": "median 20.4 ms, no loss",
        "result": {"rtt_median": 20.4},
        "verdict": "clean",
        "outcome": {"judgement": "good", "code": None, "reason": None},
        "metrics": [_METRIC],
        "requester": "alice",
    },
    RunInterval: {
        "number": 0,
        "starts_at": "2026-12-01T00:00:00Z",
        "ends_at": "2026-12-01T00:01:00Z",
        "result": {"rtt_median": 20.4},
        "summary": "median 20.4 ms, no loss",
        "reason": None,
        "metrics": [_METRIC],
    },
    Explanation: {
        "task": _TASK_ID,
        "run": _RUN_ID,
        "headline": _HEADLINE,
        "state": "finished",
        "sentence": "finished: median 20.4 ms, no loss, at 2026-12-01T00:00:00Z",
        "requester": "alice",
        "decisions": [],
    },
    NodeCard: _CARD,
    Node: {
        **_CARD,
        "is_self": True,
        "added_at": "2026-11-30T12:00:00Z",
        "seen_at": "2026-12-01T00:00:00Z",
        "unreachable_since": None,
        "last_error": None,
    },
    ClockState: {"now": "2026-12-01T00:00:00Z", "synchronised": True, "error_bound_ms": 0.8},
    RevocationRequest: {"prepare": True},
    Revocation: {"statement": "eyJhbGciOiJFZERTQSJ9.eyJrZXkiOiJlZDI1NTE5OjlyWDIifQ.c2lnbmF0dXJl"},
    SecretDocument: {"name": "api-token", "value": "Bearer 3f9a", "hosts": ["api.example"]},
    AlertChangeDocument: {"acknowledged": True, "silent_until": "2026-12-01T18:00:00Z"},
    WebhookDocument: {"name": "pager", "url": "https://alerts.example/parley", "failures": 3},
    Token: _TOKEN,
    NewToken: {**_TOKEN, "token": "CqZ1…"},
}
"""By model, one document as JSON."""
