"""The types of the route table, which aiohttp serves and OpenAPI describes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from aiohttp import web

from node.access.request_rates import Allowance
from node.model.classes import SchedulingClass
from node.model.permissions import PERMISSIONS, Access
from node.model.principals import REQUESTER as REQUESTER_FORM
from node.model.principals import Principal
from node.model.wire.fields import Document

if TYPE_CHECKING:
    from node.service import NodeService


NODE: web.AppKey[NodeService] = web.AppKey("node")
"""The node that an application serves."""

ROUTES_SERVED: web.AppKey[dict[str, Route]] = web.AppKey("routes")
"""The routes of an application by method and path."""

PRINCIPAL: web.RequestKey[Principal] = web.RequestKey("principal")
"""The caller."""
SENDER: web.RequestKey[str] = web.RequestKey("sender")
"""The identity of the node that signed a participant's request."""
ANSWER_NONCE: web.RequestKey[str] = web.RequestKey("answer nonce")
"""The nonce of the node's request, for which the answer is signed."""
BODY: web.RequestKey[bytes] = web.RequestKey("body")
PROBLEM: web.RequestKey[str] = web.RequestKey("problem")
"""The code of the error with which the request is answered, or of what is refused in the answer."""
THING: web.RequestKey[str] = web.RequestKey("thing")
"""The id or name of what the request is about, where neither path nor Location has it."""
ALLOWANCE: web.RequestKey[Allowance | None] = web.RequestKey("allowance")
"""The requests that the user has left; None if they have no limit."""
TRIAL: web.RequestKey[bool] = web.RequestKey("trial")
"""Set by the handler of a change that changes nothing this time."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Query:
    """A query parameter or header, for the OpenAPI document."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True)
class Route:
    """One method on one path."""

    method: str
    path: str
    handler: Handler
    summary: str
    body: type[Document] | None = None
    answer: type[Document] | None = None
    listed: bool = False
    status: int = 200
    query: tuple[Query, ...] = ()
    media_type: str = "application/json"
    headers: tuple[Query, ...] = ()
    several: tuple[type[Document], type[Document]] | None = None
    """The item of a list that the body may be, too, and of the list that then answers, with 200."""
    body_max: int | None = None
    """Maximum bytes of the body, if it is less than the access rule allows."""
    cost: int = 0
    """Work of a question of another node (ms of processor), besides that by its length; 0 if it is
    not counted: what ends, frees, or decides is always taken, unless it is long."""
    without_database: bool = False
    """True if it answers while the database does not, to callers whose tokens were valid before."""

    tells_time: bool = False
    """True if other nodes confirm their clocks by its answer: there is none by a clock in doubt."""

    @property
    def access(self) -> Access:
        """The callers that it permits, by the table of permissions."""
        return PERMISSIONS[self.operation]

    @property
    def operation(self) -> str:
        """The method and the path, such as ``GET /v1/tasks``."""
        return f"{self.method} {self.path}"

    @property
    def name(self) -> str:
        """The name of the operation in the OpenAPI document and in the audit: ``list_runs``."""
        named = OPERATION_NAMES.get(self.operation)
        if named is not None:
            return named
        if self.path.startswith("/v1/participant/"):
            return f"peer_{self.handler.__name__}"
        return operation_name(self.method, self.path, listed=self.listed)


OPERATION_NAMES = {
    "DELETE /v1/tasks/{id}": "cancel_task",
    "DELETE /v1/runs/{id}": "cancel_run",
    "DELETE /v1/tokens/{id}": "revoke_token",
    "GET /healthz": "get_health",
    "GET /problems": "list_problems",
    "GET /readyz": "get_readiness",
    "GET /v1/archivings/backlog": "list_backlog",
    "GET /v1/events": "stream_events",
    "GET /v1/nodes/self": "get_own_node",
    "GET /v1/policysets": "list_policy_sets",
    "GET /v1/runs/{id}/explain": "explain_run",
    "GET /v1/tasks/{id}/explain": "explain_task",
    "GET /v1/tokens/self": "get_caller",
    "POST /v1/archivings/retry": "retry_archivings",
    "POST /v1/checks": "check_nodes",
    "POST /v1/introductions": "introduce_nodes",
    "POST /v1/limits/trials": "try_limits",
    "POST /v1/meshes/trials": "try_mesh",
    "POST /v1/nodes": "add_node",
    "POST /v1/nodes/self/rekey": "rekey_own_node",
    "POST /v1/nodes/self/revocation": "revoke_own_key",
    "POST /v1/participant/tasks/ends": "end_task",
    "POST /v1/plans": "plan_task",
    "POST /v1/pools/{name}/policy-plan": "plan_policy",
    "POST /v1/revocations": "revoke_key",
    "POST /v1/tasks/changes": "change_tasks",
    "PUT /v1/participant/tasks/{id}": "introduce_task",
}
"""The operations whose names do not follow from method and path."""

_VERBS = {"GET": "get", "POST": "create", "PATCH": "edit", "DELETE": "remove"}
_SINGULARS = {"meshes": "mesh", "directories": "directory"}


def operation_name(method: str, path: str, *, listed: bool) -> str:
    """Return the name of an operation as one would name a method.

    >>> operation_name("GET", "/v1/tasks/{id}/runs", listed=True)
    'list_task_runs'
    >>> operation_name("POST", "/v1/tasks/{id}/pause", listed=False)
    'pause_task'
    """
    parts = path.removeprefix("/v1").removesuffix(".json").strip("/").split("/")
    words = [
        _SINGULARS.get(word, word.removesuffix("s")) if following[:1] == "{" else word
        for word, following in pairwise([*parts, ""])
        if word[:1] != "{"
    ]
    if method == "POST" and len(parts) > len(words) and parts[-1][:1] != "{":
        return "_".join((words[-1], *words[:-1]))
    if method == "POST":
        words[-1] = _SINGULARS.get(words[-1], words[-1].removesuffix("s"))
    return "_".join(("list" if listed else _VERBS[method], *words))


_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

TEXT = {"type": "string"}
INSTANT = {
    "anyOf": [
        {"type": "string", "format": "date-time"},
        {"type": "string", "pattern": "^(now|today|yesterday|tomorrow|[-+][0-9]{1,2}[mhd])$"},
    ],
    "examples": ["2026-12-01T00:00:00Z", "-1d"],
}
"""An instant of a query: the usual forms of ``node.model.moments``."""
ID: dict[str, Any] = {"type": "string", "format": "uuid"}
NAME: dict[str, Any] = {"type": "string", "minLength": 1}

WORD = {
    "type": "string",
    "pattern": "^[A-Za-z0-9-]*[A-Za-z0-9][A-Za-z0-9-]*$",
    "maxLength": 500,
}
CURSOR_TEXT = {"type": "string", "pattern": f"^[0-9]{{1,15}}_{_UUID}$"}
NAME_CURSOR = {"type": "string"}

LIMIT = Query(
    "limit", "Page size.", {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}
)
WHOLE_LIMIT = Query(
    "limit", "Page size.", {"type": "integer", "minimum": 1, "maximum": 500, "default": 500}
)
CURSOR = Query("cursor", "The value of next in the previous page.", CURSOR_TEXT)
CURSOR_BY_KEY = Query("cursor", "The value of next in the previous page.", TEXT)
CURSOR_BY_NAME = Query("cursor", "The value of next in the previous page.", NAME_CURSOR)
PREFIX = Query("prefix", "First characters of an id.", WORD)
REQUESTER = Query(
    "requester",
    "Only what this user requested: the label of their token, or pscheduler:ADDRESS.",
    {"type": "string", "pattern": f"^{REQUESTER_FORM.pattern}$"},
)


CLASSES = frozenset(SchedulingClass)


def words_schema(known: Iterable[str]) -> dict[str, Any]:
    """Return the schema of a query parameter that has known words, separated by commas."""
    return {"type": "array", "items": {"type": "string", "enum": sorted(known)}}


_SEARCHED = {"type": "string", "maxLength": 500, "examples": ["unreachable b.example"]}
_LINE = {"type": "string", "pattern": "^[ -~]{1,500}$"}

MEASURED = (
    Query("participant", "Only with this node among the participants, by its name.", _LINE),
    Query("target", "Only with this target: the dest, url, or name in the spec.", _LINE),
    Query("campaign", "Only of this campaign; default for those without one.", WORD),
    Query("mesh", "Only of this mesh.", WORD),
    Query("class", "Only of these classes, separated by commas.", words_schema(CLASSES)),
    Query(
        "q",
        "Only those that have all these words, in upper or lower case, anywhere in what people "
        "read of them: id, test, tool, state, reason, participants, target, campaign, requester, "
        "reference, and of runs summary and verdict.",
        _SEARCHED,
    ),
)
"""Filters of tasks and runs by what is measured, and for whom."""


def fields_query(kind: type[Document]) -> Query:
    """Return the description of the query parameter ``fields`` of a list of such documents."""
    text = "Items have only these fields, separated by commas; the schema is of all."
    return Query("fields", text, words_schema(kind.model_fields))


def wait_query(until: str) -> Query:
    """Return the description of the query parameter ``wait``, which delays an answer until then."""
    return Query(
        "wait",
        f"Answer only when {until}, after at most this many seconds.",
        {"type": "number", "minimum": 0, "maximum": 300, "default": 0},
    )
