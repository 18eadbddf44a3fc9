"""The client of a Parley node's API, synchronous and asynchronous, with types.

::

    with Parley("http://127.0.0.1:8642", token) as parley:
        task = parley.create_task({"test": {"type": "rtt", "spec": {"dest": "192.0.2.7"}}})
        run = parley.until_run(task.id, ["finished", "failed"])

Instants and durations are whole microseconds; :func:`to_datetime`, :func:`from_datetime`,
:func:`format_duration`, and :func:`parse_duration` convert them.
"""

from node.client.responses import Page
from node.client.users import TimeSpan
from node.model.errors import (
    AnswerLost,
    Conflict,
    InvalidDocument,
    LimitRefused,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    NoTime,
    ParleyError,
    PeerError,
    PeerUnreachable,
    RequestError,
    TooManyRequests,
)
from node.model.times import (
    format_duration,
    format_instant,
    from_datetime,
    parse_duration,
    parse_instant,
    to_datetime,
)
from node.model.wire.nodes import Node, NodeCard
from node.model.wire.plans import Plan
from node.model.wire.runs import Explanation, MetricView, Run, RunInterval
from node.model.wire.tasks import Task
from parley_client.asynchronous import AsyncParley
from parley_client.synchronous import Parley

__all__ = [
    "AnswerLost",
    "AsyncParley",
    "Conflict",
    "Explanation",
    "InvalidDocument",
    "LimitRefused",
    "MetricView",
    "NoTime",
    "Node",
    "NodeCard",
    "NotAllowed",
    "NotAuthenticated",
    "NotFound",
    "Page",
    "Parley",
    "ParleyError",
    "PeerError",
    "PeerUnreachable",
    "Plan",
    "RequestError",
    "Run",
    "RunInterval",
    "Task",
    "TimeSpan",
    "TooManyRequests",
    "format_duration",
    "format_instant",
    "from_datetime",
    "parse_duration",
    "parse_instant",
    "to_datetime",
]
