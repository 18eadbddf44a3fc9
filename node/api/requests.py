"""Parse requests: bodies, query parameters, ids; every fault has a pointer or a name.

Bodies are read by the middleware; here they are parsed once, by orjson, and then validated as a
model, which reports all faults at once, each with its JSON pointer (RFC 6901). Before that, what
would cost too much is refused: containers are counted in the bytes, values and their depth in the
parsed document, and NUL, which Postgres cannot store, only where the bytes have its escape. A query
parameter that a route does not know is refused, because it would have no effect. Cursors are opaque
to callers: the values by which the last item of a page is sorted. Whether a caller may have what
they ask for is not decided here, except whose tasks a list may have (:func:`requester`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC
from typing import Any, Protocol, TypeVar
from uuid import UUID

import orjson
from aiohttp import web
from pydantic import ValidationError

from node.api.conditions import matched_revision
from node.api.routing import BODY, NODE, PRINCIPAL, SENDER
from node.model import times
from node.model.errors import FieldFault, InvalidDocument, MalformedRequest, NotFound
from node.model.moments import parse_moment
from node.model.permissions import require_own
from node.model.principals import REQUESTER
from node.model.similar import suggestion
from node.model.unique_json import RepeatedMember, parse_json
from node.model.wire.fields import FROM_OUTSIDE, Document, Patch
from node.model.wire.validation import faults_of, many_unknown

T = TypeVar("T", bound=Document)
Item = TypeVar("Item")

DEPTH_MAX = 64
VALUES_MAX = 40_000
"""Maximum number of values in a document of a user. If all of many more were wrong, to find that
out would occupy the event loop for seconds, and a kilobyte each."""

PEER_VALUES_MAX = 100_000
"""Maximum number of values in a document of another node. The largest that a node sends are batches
of holds: 2,048 runs of six values, and for each of 64 tasks up to 1,000 runs that may give way.
"""

PEER_FIELDS_MAX = 20_000
"""Maximum number of fields in a large message of numbers and ids, counting those of all objects:
2,048 runs of six fields, and a dozen of each of 64 tasks, are 13,000."""

PEER_LISTS_MAX = 5_000
"""Maximum number of lists in one: each of 2,048 windows is one. Pydantic copies for each missing
field all that is beside it."""

_LARGE = 65_536

WAIT_MAX_S = 300.0
PAGE = 50
PAGE_MAX = 500
_DIGITS = 9
_TEXT_MAX = 500
_WORDS_MAX = 20
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_BLANK_OFFSET = re.compile(r"[T ]\d\d:\d\d\S* \d\d:\d\d$", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}", re.ASCII)


def document(request: web.Request, kind: type[T]) -> T:
    """Parse the request body as a document.

    :raises MalformedRequest: it is not JSON.
    :raises InvalidDocument: fields are wrong; each fault has a pointer.
    """
    body = request[BODY]
    if not body:
        msg = "the request body is empty; send a JSON document"
        raise MalformedRequest(msg)
    values_max = PEER_VALUES_MAX if SENDER in request else VALUES_MAX
    parsed = _parsed_body(body, values_max)
    if isinstance(parsed, dict) and (unknown := many_unknown(parsed, kind, len(body) > _LARGE)):
        raise InvalidDocument(unknown)
    _check(parsed, body, values_max)
    try:
        return kind.model_validate(parsed, context=FROM_OUTSIDE)
    except ValidationError as error:
        raise InvalidDocument(faults_of(error, kind)) from None


P = TypeVar("P", bound=Patch)


def patch(request: web.Request, kind: type[P]) -> P:
    """Parse the request body as a change; If-Match has the revision, if the body has none.

    :raises MalformedRequest: it is not JSON.
    :raises InvalidDocument: fields are wrong; each fault has a pointer.
    :raises PreconditionFailed: If-Match has no tag of this node.
    """
    change = document(request, kind)
    demanded = matched_revision(request)
    if demanded is None:
        return change
    if change.revision not in (None, demanded):
        reason = f"is {change.revision}, and If-Match demands revision {demanded}"
        raise InvalidDocument([FieldFault("/revision", reason)])
    return change.model_copy(update={"revision": demanded})


def is_list(request: web.Request) -> bool:
    """Return whether the request body is a JSON list."""
    return request[BODY].lstrip()[:1] == b"["


def document_list(request: web.Request, most: int) -> list[Any]:
    """Parse the request body as a list; its items are checked one by one (:func:`item`).

    :raises MalformedRequest: it is not JSON.
    :raises InvalidDocument: it is empty or too long.
    """
    items = _parsed_body(request[BODY], VALUES_MAX)
    if not 1 <= len(items) <= most:
        reason = f"has {len(items)} items; send from 1 to {most} in one list"
        raise InvalidDocument([FieldFault("", reason)])
    _check(items, request[BODY], VALUES_MAX)
    return list(items)


def item(parsed: Any, kind: type[T]) -> T:
    """Return one item of a list as a document.

    :raises InvalidDocument: fields are wrong; each fault has a pointer, from the item on.
    """
    if isinstance(parsed, dict) and (unknown := many_unknown(parsed, kind)):
        raise InvalidDocument(unknown)
    try:
        return kind.model_validate(parsed, context=FROM_OUTSIDE)
    except ValidationError as error:
        raise InvalidDocument(faults_of(error, kind)) from None


def quick_document(request: web.Request, kind: type[T]) -> T:
    """Parse a large body that consists of numbers and ids only, without the checks of texts.

    :raises MalformedRequest: it is not JSON.
    :raises InvalidDocument: fields are wrong; each fault has a pointer.
    """
    if request[BODY].count(b",") > PEER_VALUES_MAX:  # no text of such a document has commas
        raise _too_many_values(PEER_VALUES_MAX)
    for mark, what, most in ((b":", "fields", PEER_FIELDS_MAX), (b"[", "lists", PEER_LISTS_MAX)):
        if request[BODY].count(mark) > most:
            raise InvalidDocument([FieldFault("", f"has more than {most} {what}; send fewer")])
    try:
        return kind.model_validate_json(request[BODY], context=FROM_OUTSIDE)
    except ValidationError as error:
        if error.error_count() == 1 and error.errors()[0]["type"] == "json_invalid":
            return document(request, kind)
        raise InvalidDocument(faults_of(error, kind)) from None


def _parsed_body(body: bytes, values_max: int) -> Any:
    """Parse a body as JSON.

    :raises MalformedRequest: it is not JSON.
    :raises InvalidDocument: it has more lists and objects than a document may have values.
    """
    if _has_more_containers(body, values_max):
        raise _too_many_values(values_max)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        msg = f"the request body is not JSON: {error}"
        raise MalformedRequest(msg) from None


def _has_more_containers(body: bytes, most: int) -> bool:
    """Return whether a document has more lists and objects than this, before it is parsed.

    Hundreds of thousands of empty lists are short to write, and take a third of a second to parse
    and to drop.
    """
    if body.count(b"[") + body.count(b"{") <= most + 1:
        return False
    bare = _STRING.sub(b"", body)
    return bare.count(b"[") + bare.count(b"{") > most + 1


def _check(parsed: Any, text: bytes, values_max: int) -> None:
    """Refuse what Postgres cannot store (NUL), and documents with too many or too deep values.

    ``text`` is what was parsed. A NUL can only be written as an escape, so the texts of a document
    without that escape need no look.
    """
    level, values, fields = [parsed], 0, 0
    for _ in range(DEPTH_MAX + 1):
        parents = [each for each in level if isinstance(each, dict | list)]
        values += sum(map(len, parents))
        fields += sum(len(each) for each in parents if isinstance(each, dict))
        if values > values_max:
            raise _too_many_values(values_max)
        level = [child for each in parents for child in _children(each)]
    if level or b"\\u0000" in text:
        _raise_first_fault(parsed)
    if values_max == VALUES_MAX:  # other nodes write their documents by the same library
        _refuse_repeated_members(fields, text)


def _refuse_repeated_members(count: int, text: bytes) -> None:
    """Refuse a document with a member twice, of which a reader would take the first or the last.

    ``count`` is the number of members after parsing: each has one colon outside of texts.
    """
    if text.count(b":") > count and _STRING.sub(b"", text).count(b":") > count:
        try:
            parse_json(text)
        except RepeatedMember as error:
            raise InvalidDocument([FieldFault("", str(error))]) from None


def _children(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _too_many_values(most: int) -> InvalidDocument:
    return InvalidDocument([FieldFault("", f"has more than {most} values; send fewer")])


def _raise_first_fault(parsed: Any) -> None:
    """Raise the first fault of a document with its place; slow, so only for suspicious ones."""
    stack: list[tuple[Any, str, int]] = [(parsed, "", 0)]
    while stack:
        value, pointer, depth = stack.pop()
        if depth > DEPTH_MAX:
            raise InvalidDocument([FieldFault(pointer[:200], f"nests deeper than {DEPTH_MAX}")])
        if isinstance(value, str) and "\x00" in value:
            raise InvalidDocument([FieldFault(pointer, "contains a NUL character")])
        if isinstance(value, dict):
            for key, child in value.items():
                if "\x00" in key:
                    raise InvalidDocument([FieldFault(pointer, "has a key with a NUL character")])
                escaped = key.replace("~", "~0").replace("/", "~1")
                stack.append((child, f"{pointer}/{escaped}", depth + 1))
        elif isinstance(value, list):
            stack.extend((child, f"{pointer}/{i}", depth + 1) for i, child in enumerate(value))


def identifier(request: web.Request, name: str = "id") -> UUID:
    """Return a UUID of the path.

    :raises NotFound: it is not a UUID.
    """
    text = request.match_info[name]
    try:
        return UUID(text)
    except ValueError:
        msg = f"{text!r} is not an id; ids are UUIDs, and lists can be searched with ?prefix="
        raise NotFound(msg) from None


def name(request: web.Request, what: str) -> str:
    """Return a name of the path.

    :raises NotFound: it is not a valid name.
    """
    text = request.match_info["name"]
    if _NAME.fullmatch(text) is None:
        msg = f"there is no {what} {text!r}: names consist of small letters, digits and '-'"
        raise NotFound(msg)
    return text


def instant(request: web.Request, name: str) -> int | None:
    """Return a query parameter that is a time, in UTC, as µs since 1970; None if it is absent."""
    text = request.query.get(name)
    if text is None:
        return None
    if text.startswith(" ") or _BLANK_OFFSET.search(text):
        text = "+".join(text.rsplit(" ", 1))  # where somebody forgot to quote the plus
    try:
        return parse_moment(text).at(request.app[NODE].clock.now(), UTC)
    except ValueError as error:
        raise _query_fault(name, str(error)) from None


def seconds(request: web.Request, name: str = "wait") -> float:
    """Return a query parameter that is a number of seconds, 0 to WAIT_MAX_S; 0 if it is absent."""
    text = request.query.get(name, "0")
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= WAIT_MAX_S:
        raise _query_fault(name, f"must be a number of seconds from 0 to {WAIT_MAX_S:g}")
    return value


def limit(request: web.Request, default: int = PAGE) -> int:
    """Return the page size: the query parameter ``limit``, or the default."""
    text = request.query.get("limit", str(default))
    value = int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else 0
    if not 1 <= value <= PAGE_MAX:
        raise _query_fault("limit", f"must be a number from 1 to {PAGE_MAX}")
    return value


def number(request: web.Request, name: str, most: int, least: int = 0) -> int | None:
    """Return a query parameter that is a whole number from ``least`` to ``most``."""
    text = request.query.get(name)
    if text is None:
        return None
    small = text.isascii() and text.isdecimal() and len(text) <= len(str(most))
    if not small or not least <= int(text) <= most:
        raise _query_fault(name, f"is not a whole number from {least} to {most}")
    return int(text)


def choices(request: web.Request, name: str, known: frozenset[str]) -> list[str] | None:
    """Return the words of a comma-separated query parameter, all of which must be known."""
    text = request.query.get(name)
    if text is None:
        return None
    words = [word for word in text.split(",") if word]
    if not words:
        raise _query_fault(name, f"is empty; leave it out, or give {', '.join(sorted(known))}")
    for word in words:
        if word not in known:
            raise _query_fault(name, f"{word!r} is not known; {suggestion(word, sorted(known))}")
    return words


def fields(request: web.Request, kind: type[Document]) -> frozenset[str] | None:
    """Return the names of the fields to answer with; None if all."""
    names = choices(request, "fields", frozenset(kind.model_fields))
    return frozenset(names) if names else None


def uuids(request: web.Request, name: str, most: int) -> list[UUID] | None:
    """Return the UUIDs of a comma-separated query parameter."""
    text = request.query.get(name)
    if text is None:
        return None
    words = text.split(",")
    if len(words) > most:
        raise _query_fault(name, f"has {len(words)} ids; ask for at most {most} at once")
    try:
        return [UUID(each) for each in words]
    except ValueError:
        raise _query_fault(name, "must be ids (UUIDs), separated by commas") from None


def keys(request: web.Request, name: str, most: int) -> list[str] | None:
    """Return the keys of a comma-separated query parameter; None if it is absent."""
    text = request.query.get(name)
    if text is None:
        return None
    words = text.split(",")
    if len(words) > most:
        raise _query_fault(name, f"has {len(words)} keys; ask for at most {most} at once")
    if not is_storable(text):
        raise _query_fault(name, "has a character that no key has")
    return words


def duration(request: web.Request, name: str) -> int | None:
    """Return a query parameter that is a duration of at least 1 s, in µs; None if it is absent."""
    text = request.query.get(name)
    if text is None:
        return None
    try:
        value = times.parse_duration(text)
    except ValueError as error:
        raise _query_fault(name, str(error)) from None
    if value < times.SECOND:
        raise _query_fault(name, "must be at least a second")
    return value


def choice(request: web.Request, name: str, known: frozenset[str]) -> str | None:
    """Return the word of a query parameter that takes one, which must be known."""
    words = choices(request, name, known)
    if words is not None and len(words) > 1:
        raise _query_fault(name, f"takes one of {', '.join(sorted(known))}")
    return words[0] if words else None


def flag(request: web.Request, name: str) -> bool:
    """Return a query parameter that is ``true`` or ``false``; false by default."""
    return choices(request, name, frozenset({"true", "false"})) == ["true"]


def word(request: web.Request, name: str) -> str | None:
    """Return a short plain word, such as a name or the beginning of an id."""
    text = request.query.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.replace("-", "").isalnum() or len(text) > PAGE_MAX:
        raise _query_fault(name, "must be letters, digits and '-'")
    return text.lower()


def text(request: web.Request, name: str) -> str | None:
    """Return a query parameter that is a line of ASCII, such as a host or a URL."""
    value = request.query.get(name)
    if value is None:
        return None
    if not 1 <= len(value) <= _TEXT_MAX or not (value.isascii() and value.isprintable()):
        raise _query_fault(name, f"must be 1 to {_TEXT_MAX} printable ASCII characters")
    return value


def search_words(request: web.Request) -> list[str] | None:
    """Return the words of the query ``q``, in lower case, without the arrows of headlines."""
    value = request.query.get("q")
    if value is None:
        return None
    if len(value) > _TEXT_MAX or not value.isprintable():
        raise _query_fault("q", f"must be at most {_TEXT_MAX} printable characters")
    words = [each for each in value.lower().split() if each not in {"→", "←"}]
    if len(words) > _WORDS_MAX:
        raise _query_fault("q", f"must be at most {_WORDS_MAX} words")
    return words


def requester(request: web.Request) -> str | None:
    """Return the user whose tasks alone are listed: of the query, or the only one they may see.

    :raises NotAllowed: the caller sees only their own tasks, and asks for those of another user.
    """
    asked, only = request.query.get("requester"), request[PRINCIPAL].only
    if asked is not None:
        if REQUESTER.fullmatch(asked) is None:
            raise _query_fault("requester", "is not the label of a user")
        require_own(request[PRINCIPAL], asked, f"what {asked} requested")
    return asked or only


def json(request: web.Request, name: str, otherwise: Any) -> Any:
    """Return a query parameter parsed as JSON, or ``otherwise`` if it is absent."""
    text = request.query.get(name)
    if text is None:
        return otherwise
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _query_fault(name, f"is not JSON: {error}") from None
    _check(parsed, text.encode("utf-8", "surrogatepass"), VALUES_MAX)
    return parsed


def uuid(request: web.Request, name: str) -> UUID | None:
    """Return a query parameter that is a UUID; None if it is absent."""
    text = request.query.get(name)
    if text is None:
        return None
    try:
        return UUID(text)
    except ValueError:
        raise _query_fault(name, "must be an id (a UUID)") from None


def cursor(request: web.Request) -> tuple[int, UUID] | None:
    """Return the position where the previous page ended, from :func:`next_cursor`."""
    text = request.query.get("cursor")
    if text is None:
        return None
    at, _, identifier_text = text.partition("_")
    try:
        instant_at, identifier_at = int(at[:20]), UUID(identifier_text)
    except ValueError:
        instant_at, identifier_at = -1, None
    if identifier_at is None or not 0 <= instant_at < times.LATEST:
        raise _query_fault("cursor", "is not a cursor that a list has returned as next")
    return instant_at, identifier_at


def placed_cursor(request: web.Request) -> tuple[str, UUID] | None:
    """Return the place in an order of texts, and the id, where the previous page ended."""
    text = request.query.get("cursor")
    if text is None:
        return None
    place, _, identifier_text = text.rpartition("_")
    with contextlib.suppress(ValueError):
        if is_storable(place):
            return place, UUID(identifier_text)
    raise _query_fault("cursor", "is not a cursor that a list has returned as next")


def is_storable(text: str) -> bool:
    """Return whether Postgres can store a text: it has no NUL and no lone surrogate."""
    return "\x00" not in text and text.encode(errors="replace").decode() == text


def next_cursor(
    items: Sequence[Item], limit: int, position: Callable[[Item], tuple[int | str, UUID]]
) -> str | None:
    """Return the cursor of the next page; ``None`` after a page that is not full.

    ``position`` gives the number, instant or text, and the id, by which the list is sorted.
    """
    if len(items) < limit:
        return None
    at, item_id = position(items[-1])
    return f"{at}_{item_id}"


def named_cursor(request: web.Request) -> tuple[int, str] | None:
    """Return the position where the previous page ended, in a list sorted by instant and name."""
    text = request.query.get("cursor")
    if text is None:
        return None
    at, _, name = text.partition("_")
    known = at.isascii() and at[:20].isdecimal() and _NAME.fullmatch(name)
    if not known or int(at[:20]) >= times.LATEST:
        raise _query_fault("cursor", "is not a cursor that a list has returned as next")
    return int(at[:20]), name


class Named(Protocol):
    """A document with a name."""

    @property
    def name(self) -> str:
        """The name by which lists are sorted."""
        ...


N = TypeVar("N", bound=Named)


def page_of_names(request: web.Request, every: Sequence[N]) -> tuple[Sequence[N], str | None]:
    """Return the requested page of a list sorted by name, and the cursor of the next one."""
    after, size = request.query.get("cursor", ""), limit(request)
    rest = [one for one in every if one.name > after]
    return rest[:size], rest[size - 1].name if len(rest) > size else None


def refuse_other_parameters(request: web.Request, *names: str) -> None:
    """Raise for a query parameter that is not among these: it would have no effect.

    :raises InvalidDocument: there is one; the error names it.
    """
    for name in request.query:
        if name not in names:
            hint = suggestion(name, names)
            raise _query_fault(name, f"is not a parameter of this route; {hint}")


def _query_fault(name: str, sentence: str) -> InvalidDocument:
    return InvalidDocument([FieldFault(f"?{name}", sentence)])
