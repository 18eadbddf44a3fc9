"""The one tree of exceptions, split by whose fault it is.

::

    ParleyError
    ├── RequestError              the caller can mend it
    │   ├── InvalidDocument       422  a field is wrong; carries pointers
    │   ├── MalformedRequest      400  not a document at all
    │   ├── NotAuthenticated      401  no valid token or signature
    │   ├── NotAllowed            403  known, but not allowed
    │   ├── NotFound              404
    │   ├── MethodNotAllowed      405
    │   ├── Conflict              409  clashes with what is already there
    │   ├── TooLarge              413
    │   └── RefusedByParticipant  422  a participant will not take part
    ├── PeerError                 another node is at fault
    │   ├── PeerUnreachable       502
    │   │   └── AnswerLost        502  it was asked, and may have done it
    │   └── PeerAnswered          502  an answer that makes no sense, or a 5xx
    └── HostError                 this host cannot do it
        ├── DatabaseUnavailable   503
        ├── SchemaMismatch        500  program and database differ in version
        ├── ToolUnavailable       422
        ├── ToolOutputError       500  the tool's output is not a result
        └── ArchiverFailed        502  results cannot be delivered there

Every class has a stable ``code`` (it becomes the problem document's ``type``), an HTTP ``status``
and an exit code for the command line. The message says what happened, why, and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class FieldFault:
    """One wrong field: a JSON pointer into the document and a sentence about it."""

    pointer: str
    detail: str


class ParleyError(Exception):
    """Something Parley can explain."""

    code: ClassVar[str] = "server-fault"
    title: ClassVar[str] = "Parley could not do this"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 8

    @property
    def detail(self) -> str:
        """The sentence for a person."""
        return str(self.args[0]) if self.args else self.title


class RequestError(ParleyError):
    """The request cannot be served as it is; the caller can mend it."""

    code = "bad-request"
    title = "The request cannot be served"
    status = 400
    exit_code = 2


class MalformedRequest(RequestError):
    """The body is not a JSON document, or not one we are ready to read."""

    code = "malformed"
    title = "The request is malformed"


class InvalidDocument(RequestError):
    """Well-formed, but a field is wrong."""

    code = "invalid-document"
    title = "The document is not valid"
    status = 422

    def __init__(self, faults: list[FieldFault]) -> None:
        """Keep the faults; the first one is the message."""
        self.faults = faults
        first = faults[0]
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(f"{first.pointer or '/'}: {first.detail}{more}")


class NotAuthenticated(RequestError):
    """Nobody we know signed or sent this."""

    code = "not-authenticated"
    title = "Who is asking is not known"
    status = 401
    exit_code = 3


class NotAllowed(RequestError):
    """Known, but not allowed to do this."""

    code = "not-allowed"
    title = "Not allowed"
    status = 403
    exit_code = 3


class NotFound(RequestError):
    """No such thing here."""

    code = "not-found"
    title = "Not found"
    status = 404
    exit_code = 6


class MethodNotAllowed(RequestError):
    """There is something at this path, but it cannot be asked for in this way."""

    code = "method-not-allowed"
    title = "This method is not possible here"
    status = 405


class Conflict(RequestError):
    """It clashes with what is already there."""

    code = "conflict"
    title = "It conflicts with what is there"
    status = 409
    exit_code = 3


class TooLarge(RequestError):
    """More bytes than a node reads, in a request or in the answer to it."""

    code = "too-large"
    title = "The request or its answer is too large"
    status = 413


class RefusedByParticipant(RequestError):
    """A participant will not take part in this task."""

    code = "refused-by-participant"
    title = "A participant refuses the task"
    status = 422
    exit_code = 3


class PeerError(ParleyError):
    """Another node is at fault."""

    code = "peer-fault"
    title = "Another node is at fault"
    status = 502
    exit_code = 5


class PeerUnreachable(PeerError):
    """No answer from the other node."""

    code = "peer-unreachable"
    title = "A node cannot be reached"


class AnswerLost(PeerUnreachable):
    """The other node was asked, and may have done it; its answer did not come."""

    code = "answer-lost"
    title = "An answer did not come"


class PeerAnswered(PeerError):
    """The other node answered, but not with what was asked for."""

    code = "peer-answer"
    title = "A node gave an answer that makes no sense"


class HostError(ParleyError):
    """This host cannot do it."""

    code = "host-fault"
    title = "This host cannot do it"


class DatabaseUnavailable(HostError):
    """No Postgres to keep the run table in."""

    code = "database-unavailable"
    title = "The database cannot be reached"
    status = 503


class SchemaMismatch(HostError):
    """The database was made by another version of the program."""

    code = "schema-mismatch"
    title = "Program and database differ in version"


class ToolUnavailable(HostError):
    """No tool for this test is installed."""

    code = "tool-unavailable"
    title = "No tool for this test is installed"
    status = 422
    exit_code = 3


class ToolOutputError(HostError):
    """A tool printed something that is not a result."""

    code = "tool-output"
    title = "The tool's output is not a result"


class ArchiverFailed(HostError):
    """Results cannot be delivered there."""

    code = "archiver-failed"
    title = "Results cannot be delivered there"
    status = 502
    exit_code = 5
