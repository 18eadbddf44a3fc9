"""Archives: the archivers, where results go, and the deliveries, as the API shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import Field, StringConstraints, model_validator

from node.model import times
from node.model.wire.fields import Document, Duration, Instant, Name, Patch

RunsKept = Literal["succeeded", "failed", "all"]
DocumentFormat = Literal["parley", "pscheduler"]
TTL_MAX = 30 * times.DAY

Ttl = Annotated[Duration, Field(ge=times.SECOND, le=TTL_MAX)]
ArchiveLabel = Annotated[str, StringConstraints(min_length=1, max_length=200)]
HostAndPort = Annotated[
    str,
    StringConstraints(pattern=r"^(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.-]{1,253})(:[0-9]{1,5})?$"),
]
ArchivingState = Literal["waiting", "delivered", "parked"]

_Expression = Annotated[str, StringConstraints(min_length=1, max_length=4000)]


class Transform(Document):
    """A transformation of the document before delivery; no output means nothing is delivered."""

    jmespath: _Expression | None = Field(
        None, description="A JMESPath expression; nothing is delivered if its result is null."
    )
    jq: _Expression | None = Field(
        None, description="A jq program that outputs one document, or none to deliver nothing."
    )
    raw: Literal[True] | None = Field(
        None, description="Deliver a text as it is, not as a string of JSON in quotes."
    )

    @model_validator(mode="after")
    def _check_one_of_both(self) -> Self:
        if (self.jmespath is None) == (self.jq is None):
            msg = "needs either jmespath or jq"
            raise ValueError(msg)
        return self


class ArchiveChoice(Document):
    """The destination of results: an archiver with its spec."""

    archiver: Name
    spec: dict[str, Any] = Field(
        default_factory=dict, description="The archiver's own fields; see /v1/archivers."
    )
    runs: RunsKept = Field(
        "succeeded",
        description="Which runs to deliver. succeeded: runs with a result; failed: runs without "
        "one, including those that never took place, but not cancelled ones; all: both. Of a long "
        "run, intervals with a result count as succeeded and gaps as failed.",
    )
    transform: Transform | None = None
    format: DocumentFormat = Field(
        "parley",
        description="The form of the documents, before the transform. pscheduler: what pScheduler "
        "hands to its archivers, for readers that are used to it.",
    )
    ttl: Ttl | None = Field(
        None,
        description="How long after the end of a run its result is worth delivering. Without it, "
        "attempts end a day after the first one.",
    )
    note: ArchiveLabel | None = Field(None, description="What the archive is, for people.")
    uri_host: HostAndPort | None = Field(
        None, description="With the format pscheduler: the host in the links of the documents."
    )


class ArchiveDocument(ArchiveChoice):
    """An archive of the node; it gets the results of all tasks that the node leads."""

    name: Name


class ArchivePatch(Patch):
    """Changes of a node's archive; pending deliveries go to the new destination."""

    spec: dict[str, Any] | None = Field(None, description="Fields of the spec to change.")
    runs: RunsKept | None = None
    transform: dict[str, Any] | None = None
    format: DocumentFormat | None = None
    ttl: Ttl | None = None
    note: ArchiveLabel | None = None
    uri_host: HostAndPort | None = None


FORM = ("format", "ttl", "note", "uri_host")
"""The fields of an archive that are stored as one: what its documents are like."""


class Archive(ArchiveChoice):
    """A node's archive as the API shows it: secrets are replaced."""

    id: UUID
    name: Name
    destination: int = Field(description="A number shared by archives with the same spec.")
    label: str = Field(description="The destination in a few words.")
    revision: int = Field(description="Counts the changes of the archive.")
    created_at: Instant
    changed_at: Instant


class ArchiveTested(Document):
    """The outcome of trying an archive without delivering a result."""

    label: str
    detail: str


class ArchiverKind(Document):
    """An archiver, and the JSON Schema of its spec."""

    name: str
    title: str
    ordered: bool = Field(description="Whether the results of a task are delivered in order.")
    missing: str | None = Field(None, description="What to install before this node can use it.")
    spec: dict[str, Any]


class Archiving(Document):
    """The delivery of one outcome of a run, or of one of its intervals, to an archive."""

    number: int
    run: UUID
    interval: int | None = Field(description="The number of the interval; null for the whole run.")
    task: UUID
    edition: int = Field(description="Counts the outcomes of the same run, if it has several.")
    archive: str | None = Field(description="The name of the node's archive; null for a task's.")
    archiver: str
    destination: int
    label: str
    state: ArchivingState
    attempts: int = Field(description="Number of failed attempts.")
    created_at: Instant
    next_at: Instant | None = Field(description="When the next attempt takes place.")
    tried_at: Instant | None = Field(description="When the last attempt, or the delivery, was.")
    last_error: str | None


class Backlog(Document):
    """The deliveries that wait for one destination."""

    destination: int
    archiver: str
    label: str
    archives: tuple[str, ...] = Field(description="Names of the node's archives there.")
    tasks: int = Field(description="Number of tasks that have it among their archives.")
    waiting: int
    parked: int
    oldest_at: Instant | None = Field(description="When the oldest waiting delivery was created.")
    next_at: Instant | None = Field(description="When the next attempt takes place.")
    last_error: str | None
    last_error_at: Instant | None


class RetryRequest(Document):
    """The deliveries to retry at once, parked or waiting."""

    archive: Name | None = Field(None, description="Those to this archive of the node.")
    destination: int | None = Field(None, ge=1, le=2**31 - 1, strict=True)
    run: UUID | None = None
    number: int | None = Field(None, ge=1, le=2**63 - 1, strict=True)
    all: bool = Field(default=False, strict=True, description="All deliveries of this node.")

    @model_validator(mode="after")
    def _check_selection(self) -> Self:
        filters = (self.archive, self.destination, self.run, self.number)
        if all(each is None for each in filters) != self.all:
            msg = "choose deliveries by archive, destination, run or number; or give all"
            raise ValueError(msg)
        return self


class Retried(Document):
    """The number of deliveries that will be retried."""

    retried: int
