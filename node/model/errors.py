"""The exception hierarchy, divided by who is at fault.

::

    ParleyError
    ├── RequestError              the caller can correct it
    │   ├── InvalidDocument       422  a field is wrong; has pointers to the faults
    │   ├── MalformedRequest      400  the body cannot be parsed
    │   ├── NotAuthenticated      401  no valid token or signature
    │   │   └── UnknownPeer       401  the signature of a node that is not known here
    │   ├── NotAllowed            403  authenticated, but not allowed
    │   ├── NotFound              404
    │   ├── MethodNotAllowed      405
    │   ├── NotAcceptable         406  no media type that the caller accepts
    │   ├── UnsupportedMedia      415  the body has another media type than a node reads
    │   ├── Conflict              409  conflicts with the current state
    │   │   └── ChangedSince      409  it has changed since the revision that was read
    │   ├── PreconditionFailed    412  it has changed since it was read
    │   ├── NoTime                409  no run finds time, and one was to
    │   ├── TooSlow               408  the body did not arrive in time
    │   ├── TooLarge              413
    │   ├── SearchTooWide         422  it looks at more than the node reads for one request
    │   ├── TooManyRequests       429  the same request is in order later
    │   │   ├── LimitUsedUp       429  what the limits of a host allow is used up
    │   │   └── TooFast           429  more requests than a user may send here
    │   ├── RefusedByParticipant  422  a participant will not take part
    │   └── LimitRefused          403  the limits of a host do not allow it
    ├── PeerError                 another node is at fault
    │   ├── PeerUnreachable       502
    │   │   └── AnswerLost        502  the request arrived and may have been carried out
    │   ├── UnknownToPeer         502  it does not know this node
    │   ├── PeerAnswered          502  an invalid answer, or a 5xx without a reason
    │   └── PeerFailed            502  it answered that it cannot do it
    └── HostError                 this host cannot do it
        ├── Overloaded            503  for the moment
        ├── DatabaseUnavailable   503
        │   ├── ClusterInUse      503  another process of this host has started it
        │   ├── DatabaseInUse     503  others use it, and have to be stopped first
        │   ├── DatabaseDamaged   503  or worn: its owner has to repair it
        │   └── NoRoom            507  a disk is full
        ├── NotReady              503
        ├── WrongKey              500  the keys here are not those of the database
        ├── MovedAway             500  another host has this node
        │   └── CopyOfNode        500  this host has a copy of a node that goes on
        ├── SchemaMismatch        500  program and database differ in version
        ├── ToolUnavailable       422
        ├── ToolOutputError       500  the tool's output is not a result
        ├── ArchiverFailed        502  results cannot be delivered there
        └── WebhookFailed         502  a webhook did not accept a message

Every class has a stable ``code`` (it becomes the problem document's ``type``), an HTTP ``status``
and an exit code for the command line. The message says what happened, why, and what to do.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from node.model.principals import Principal
from node.model.reason import Reason

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True)
class FieldFault:
    """One wrong field: a JSON pointer into the document and a sentence about it."""

    pointer: str
    detail: str


class ParleyError(Exception):
    """Base of all errors that Parley can explain."""

    code: ClassVar[str] = "server-fault"
    title: ClassVar[str] = "Parley could not do this"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 8

    @property
    def detail(self) -> str:
        """The message for a person."""
        return str(self.args[0]) if self.args else self.title

    @property
    def reason(self) -> Reason:
        """The reason it was raised with; for a mere sentence that has the code of the error."""
        said = self.args[0] if self.args else None
        return said if isinstance(said, Reason) else Reason(self.detail, self.code, {})


def reason_of(error: BaseException) -> str:
    """Return what an error says; its kind if it says nothing, as a timeout does."""
    return str(error) or type(error).__name__


class RequestError(ParleyError):
    """The request cannot be served as it is; the caller can correct it."""

    code = "bad-request"
    title = "The request cannot be served"
    status = 400
    exit_code = 2


class MalformedRequest(RequestError):
    """The body is not a JSON document, or is in a form that a node does not accept."""

    code = "malformed"
    title = "The request is malformed"


class InvalidDocument(RequestError):
    """The document is well-formed, but a field is wrong."""

    code = "invalid-document"
    title = "The document is not valid"
    status = 422

    def __init__(self, faults: list[FieldFault]) -> None:
        """Keep the faults, and use the first one as the message."""
        self.faults = faults
        first = faults[0]
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(f"{first.pointer or '/'}: {first.detail}{more}")


class NotAuthenticated(RequestError):
    """No token or signature of a known user or node.

    ``claimed`` is the user whose token was sent, if it was once valid.
    """

    code = "not-authenticated"
    title = "Not authenticated"
    status = 401
    exit_code = 3

    def __init__(self, *message: str, claimed: Principal | None = None) -> None:
        """``claimed`` is nobody who may do anything; it is for the record only."""
        super().__init__(*message)
        self.claimed = claimed


class UnknownPeer(NotAuthenticated):
    """The request is signed by a node that is not known here."""

    code = "unknown-peer"
    title = "A node that is not known here"


class NotAllowed(RequestError):
    """The caller is authenticated, but not allowed to do this."""

    code = "not-allowed"
    title = "Not allowed"
    status = 403
    exit_code = 3


class NotFound(RequestError):
    """The resource does not exist on this node."""

    code = "not-found"
    title = "Not found"
    status = 404
    exit_code = 6


class MethodNotAllowed(RequestError):
    """The path exists, but not with this method."""

    code = "method-not-allowed"
    title = "This method is not allowed here"
    status = 405

    def __init__(self, message: str, allowed: Sequence[str] = ()) -> None:
        """``allowed`` are the methods of the path."""
        super().__init__(message)
        self.allowed = allowed


class NotAcceptable(RequestError):
    """The answer has no media type that the caller accepts."""

    code = "not-acceptable"
    title = "The answer has another media type"
    status = 406


class UnsupportedMedia(RequestError):
    """The body of the request has a media type that the node does not read."""

    code = "unsupported-media-type"
    title = "The body has another media type"
    status = 415

    def __init__(self, message: str, accepted: Sequence[str] = ()) -> None:
        """``accepted`` are the media types that are read there."""
        super().__init__(message)
        self.accepted = accepted


class Conflict(RequestError):
    """The request conflicts with the current state.

    ``epoch`` is the lease epoch of the task that is known here, if that of the request is older.
    """

    code = "conflict"
    title = "Conflict with the current state"
    status = 409
    exit_code = 3

    def __init__(self, *message: str, epoch: int | None = None) -> None:
        """Most conflicts have no epoch."""
        super().__init__(*message)
        self.epoch = epoch


class ChangedSince(Conflict):
    """The resource has changed since the revision that the request names."""

    code = "changed-since"
    title = "It was changed by somebody else"


class PreconditionFailed(RequestError):
    """The resource is no longer as the header If-Match says."""

    code = "precondition-failed"
    title = "It has changed since it was read"
    status = 412
    exit_code = 3


class TooLarge(RequestError):
    """A request, or its answer, has more bytes than a node accepts."""

    code = "too-large"
    title = "The request or its answer is too large"
    status = 413


class SearchTooWide(RequestError):
    """A search for words looks at more runs or tasks than the node reads for one request."""

    code = "search-too-wide"
    title = "The search looks at too much"
    status = 422


class TooManyRequests(RequestError):
    """The caller has asked too often, or has as much here as it may; later it may ask again."""

    code = "too-many-requests"
    title = "Too many requests"
    status = 429
    exit_code = 3

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        """``retry_after_s`` is the number of seconds after which to ask again."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class LimitUsedUp(TooManyRequests):
    """The caller has used up what the limits of a host allow."""

    code = "limit-reached"
    title = "A limit of the host is reached"

    def __init__(self, message: str, retry_after_s: int = 1, most: int | None = None) -> None:
        """``most`` is how much is allowed, if that can be counted in requests."""
        super().__init__(message, retry_after_s)
        self.most = most


class TooFast(TooManyRequests):
    """The user sends more requests than the owner of the node lets one send."""

    code = "too-fast"
    title = "Too many requests in a short time"


class TooSlow(RequestError):
    """The body of a request did not arrive in time."""

    code = "too-slow"
    title = "The request took too long to arrive"
    status = 408


class NoTime(RequestError):
    """No run of the task finds time, and it was to be created only if one does."""

    code = "no-time"
    title = "No time was found"
    status = 409
    exit_code = 4

    def __init__(self, message: str, offers: Sequence[Any] = ()) -> None:
        """``offers`` are other task documents that find time, as in a plan."""
        super().__init__(message)
        self.offers = offers


class RefusedByParticipant(RequestError):
    """A participant refuses to take part in the task."""

    code = "refused-by-participant"
    title = "A participant refuses the task"
    status = 422
    exit_code = 3


class LimitRefused(RequestError):
    """The limits that the owner of a host has set do not allow the task."""

    code = "limit-refused"
    title = "The limits of a host do not allow this"
    status = 403
    exit_code = 3

    def __init__(self, message: str, limits: Sequence[Any] = ()) -> None:
        """``limits`` are what each host refuses: rule, pointer, detail, allowed."""
        super().__init__(message)
        self.limits = limits


class PeerError(ParleyError):
    """Another node is at fault."""

    code = "peer-fault"
    title = "Another node is at fault"
    status = 502
    exit_code = 5


class PeerUnreachable(PeerError):
    """The other node does not answer."""

    code = "peer-unreachable"
    title = "A node cannot be reached"


class AnswerLost(PeerUnreachable):
    """The other node got the request and may have carried it out, but its answer did not arrive."""

    code = "answer-lost"
    title = "An answer did not arrive"


class UnknownToPeer(PeerError):
    """The other node does not know this one: it lost its database, or this node was removed there.

    Whatever was agreed with it is void.
    """

    code = "unknown-to-peer"
    title = "A node does not know this one"


class PeerAnswered(PeerError):
    """The other node's answer is an error of its own, or not a valid answer to the request."""

    code = "peer-answer"
    title = "A node gave an invalid answer"


class PeerFailed(PeerError):
    """The other node answered that its host cannot do it, such as without its database."""

    code = "peer-failed"
    title = "A node cannot do its part"


class HostError(ParleyError):
    """This host cannot do what was requested."""

    code = "host-fault"
    title = "This host cannot do it"


class Overloaded(HostError):
    """This node has as many requests as it accepts at once."""

    code = "overloaded"
    title = "This node has too much to do at the moment"
    status = 503


class DatabaseUnavailable(HostError):
    """No Postgres server holds the run table."""

    code = "database-unavailable"
    title = "The database cannot be reached"
    status = 503


class ClusterInUse(DatabaseUnavailable):
    """Another process of this host has started the private Postgres."""

    code = "cluster-in-use"
    title = "The private Postgres is in use"


class DatabaseInUse(DatabaseUnavailable):
    """Others use the database, and have to be stopped first."""

    code = "database-in-use"
    title = "The database is in use"


class DatabaseDamaged(DatabaseUnavailable):
    """The database answers that its files are damaged, or that it takes no change any more."""

    code = "database-damaged"
    title = "The database is damaged or worn out"


class NoRoom(DatabaseUnavailable):
    """A disk of this host is full, so that nothing can be stored; later the request may succeed."""

    code = "no-room"
    title = "A disk of this node is full"
    status = 507


class NotReady(HostError):
    """The node answers and cannot work: it lacks a lead, room on the disk, or time to plan."""

    code = "not-ready"
    title = "The node is not ready"
    status = 503


class WrongKey(HostError):
    """The keys of this host are not those of its database; another start changes nothing."""

    code = "wrong-key"
    title = "The database has another key"
    exit_code = 10


class MovedAway(HostError):
    """Another host has this node's key and a newer generation of its database."""

    code = "moved-away"
    title = "This node goes on at another host"
    exit_code = 9


class CopyOfNode(MovedAway):
    """This host has a copy of a node's data and key, and that node goes on where it was."""

    code = "copy-of-node"
    title = "This is a copy of a node that goes on"


class SchemaMismatch(HostError):
    """The database was created by another version of the program."""

    code = "schema-mismatch"
    title = "Program and database differ in version"


class ToolUnavailable(HostError):
    """No tool for this test is installed."""

    code = "tool-unavailable"
    title = "No tool for this test is installed"
    status = 422
    exit_code = 3


class ToolOutputError(HostError):
    """The output of a tool is not a result, or not a whole one; ``result`` is what it has of it."""

    code = "tool-output"
    title = "The tool's output is not a result"

    def __init__(self, detail: str, result: dict[str, Any] | None = None) -> None:
        """Keep why, and the part of a result that is right as far as it goes."""
        super().__init__(detail)
        self.result = result


class ArchiverFailed(HostError):
    """Results cannot be delivered to this archive."""

    code = "archiver-failed"
    title = "Results cannot be delivered there"
    status = 502
    exit_code = 5


class WebhookFailed(HostError):
    """A webhook does not accept messages."""

    code = "webhook-failed"
    title = "A webhook does not accept messages"
    status = 502
    exit_code = 5


def fault_of(error: Exception) -> ParleyError | None:
    """Return what an error means that the program did not foresee; None if it is a fault of it."""
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return NoRoom(
            f"nothing was written, because a disk of this node is full ({error}); make room there, "
            "then send the request again"
        )
    return None


def reason_at(name: str, error: ParleyError) -> Reason:
    """Return the reason of an error that another node answered with; it names the node."""
    return error.reason if isinstance(error, PeerError) else error.reason.at(name)
