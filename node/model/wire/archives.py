"""Where results go: archivers, archives, and what is delivered or waits, as the API shows it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import Field, StringConstraints, model_validator

from node.model.wire.fields import Document, Instant, Name, Patch

RunsKept = Literal["succeeded", "failed", "all"]
ArchivingState = Literal["waiting", "delivered", "parked"]

_Expression = Annotated[str, StringConstraints(min_length=1, max_length=4000)]


class Transform(Document):
    """What is delivered instead of the whole document; nothing where it gives none."""

    jmespath: _Expression | None = Field(
        None, description="An expression of JMESPath; null gives nothing to deliver."
    )
    jq: _Expression | None = Field(
        None, description="A program of jq; it must give one document, or none to deliver nothing."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.jmespath is None) == (self.jq is None):
            msg = "needs either jmespath or jq"
            raise ValueError(msg)
        return self


class ArchiveChoice(Document):
    """Where results go."""

    archiver: Name
    spec: dict[str, Any] = Field(
        default_factory=dict, description="The archiver's own fields; see /v1/archivers."
    )
    runs: RunsKept = Field(
        "succeeded",
        description="Which runs: succeeded have a result, failed have none (those that never took "
        "place included, cancelled ones not), all are both. Intervals of runs that last long: "
        "those with a result succeeded, gaps failed.",
    )
    transform: Transform | None = None


class ArchiveDocument(ArchiveChoice):
    """An archive of the node's own: there go the results of all tasks that it leads."""

    name: Name


class ArchivePatch(Patch):
    """Changes of a node's own archive; what waits for it goes to where it is then."""

    spec: dict[str, Any] | None = Field(None, description="Fields of the spec.")
    runs: RunsKept | None = None
    transform: dict[str, Any] | None = None


class Archive(ArchiveChoice):
    """A node's own archive as the API shows it: what is secret is replaced."""

    id: UUID
    name: Name
    destination: int = Field(description="What it shares with archives of the same spec.")
    label: str = Field(description="Where it is, in a few words.")
    revision: int = Field(description="Counts its changes.")
    created_at: Instant
    changed_at: Instant


class ArchiveTested(Document):
    """What came of trying an archive, without a result."""

    label: str
    detail: str


class ArchiverKind(Document):
    """An archiver, and the JSON Schema of its spec."""

    name: str
    title: str
    ordered: bool = Field(description="Whether the results of a task keep their order.")
    missing: str | None = Field(None, description="What to install before it can be used here.")
    spec: dict[str, Any]


class Archiving(Document):
    """One outcome of a run, or one interval of it, on its way to an archive."""

    number: int
    run: UUID
    interval: int | None = Field(description="Which interval of the run; null is the run itself.")
    task: UUID
    edition: int = Field(description="Counts the outcomes of the same, if it has several.")
    archive: str | None = Field(description="The name of the node's own archive; else the task's.")
    archiver: str
    destination: int
    label: str
    state: ArchivingState
    attempts: int = Field(description="How often it was tried in vain.")
    created_at: Instant
    next_at: Instant | None = Field(description="When it is tried, or tried again.")
    tried_at: Instant | None = Field(description="When it was tried last; delivered, if it is.")
    last_error: str | None


class Backlog(Document):
    """What waits for one destination."""

    destination: int
    archiver: str
    label: str
    archives: tuple[str, ...] = Field(description="Names of the node's own archives there.")
    tasks: int = Field(description="How many tasks have it among their archives.")
    waiting: int
    parked: int
    oldest_at: Instant | None = Field(description="When the oldest of these came about.")
    next_at: Instant | None = Field(description="When the next one is tried.")
    last_error: str | None
    last_error_at: Instant | None


class RetryRequest(Document):
    """Which deliveries are tried again at once: parked ones, and those that wait for their time."""

    archive: Name | None = Field(None, description="Those to this archive of the node's own.")
    destination: int | None = Field(None, ge=1, le=2**31 - 1, strict=True)
    run: UUID | None = None
    number: int | None = Field(None, ge=1, le=2**63 - 1, strict=True)
    all: bool = Field(default=False, strict=True, description="All of this node.")

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        said = (self.archive, self.destination, self.run, self.number)
        if all(one is None for one in said) != self.all:
            msg = "say which: archive, destination, run or number; or all"
            raise ValueError(msg)
        return self


class Retried(Document):
    """How many deliveries are tried again."""

    retried: int
