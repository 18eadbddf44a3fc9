"""Times as people write them: one parser for commands, documents, files, and queries. Pure.

- ``now``; ``-1d``, ``+10m``, ``in 10m``, ``2h ago``: from now; ``@1h``: the next full hour in UTC.
- ``2026-11-27``, ``today``, ``yesterday``, ``tomorrow``: the beginning of a day; with a time of day
  behind a blank or ``T``, that time. ``10:05`` alone: that time today.
- ``2026-11-28T00:00:00Z``: RFC 3339.

Days and times of day are of a zone that the reader gives: that of the terminal for what is typed,
UTC for documents and queries. A time that a clock skips is the one that it shows instead, and of
two that it repeats the first is meant. The forms are described in ``docs/reference/times.md``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from node.model import times
from node.model.similar import similar_words

_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_LOCAL = re.compile(
    rf"(?P<day>{'|'.join(_DAYS)}|\d{{4}}-\d\d-\d\d)?"
    r"(?:(?(day)[T ])(?P<hour>\d\d?)(?P<rest>:\d\d(?::\d\d(?:\.\d{1,6})?)?))?",
    re.ASCII | re.IGNORECASE,
)
_FORMS = "write now, -1d, +10m, 10:05, yesterday, 2026-12-01 or 2026-12-01T00:00:00Z"


@dataclass(frozen=True)
class Moment:
    """A time as written: an instant, or what becomes one once it is known what time it is.

    ``offset`` (µs) counts from now. With ``every`` (µs) it is the next full multiple since 1970.
    ``day`` is a date, or how many days after today; ``clock`` is a time of day. ``toward`` is 1 if
    it is never in the past, but a day later, and -1 if it is never in the future.
    """

    instant: int | None = None
    offset: int = 0
    every: int | None = None
    day: date | int | None = None
    clock: time = time()
    toward: int = 0

    @property
    def is_fixed(self) -> bool:
        """Return whether it is the same whenever it is read, but for the zone."""
        return self.instant is not None or isinstance(self.day, date)

    def at(self, now: int, zone: tzinfo | None = None) -> int:
        """Return the instant (µs) that is meant at ``now``, in the zone of this host if none is."""
        if self.instant is not None:
            return self.instant
        if self.every is not None:
            return (now // self.every + 1) * self.every
        if self.day is None:
            return now + self.offset
        if isinstance(self.day, date):
            return self._on(self.day, zone)
        day = times.to_datetime(now).astimezone(zone).date() + timedelta(days=self.day)
        instant = self._on(day, zone)
        if self.toward * (instant - now) < 0:
            return self._on(day + timedelta(days=self.toward), zone)
        return instant

    def _on(self, day: date, zone: tzinfo | None) -> int:
        # A datetime without a zone is one of this host.
        return times.from_datetime(datetime.combine(day, self.clock, zone).astimezone(UTC))


def parse_moment(text: str, toward: int = 0) -> Moment:
    """Parse a time.

    ``toward`` is 1 where only the future is meant, and -1 where only the past is: a duration
    without a sign is then a distance from now, and ``10:05`` may be tomorrow or yesterday.

    :raises ValueError: the text is not a time; the message says what is wrong and what to write.
    """
    text = text.strip()
    if text.casefold() == "now":
        return Moment()
    if text.startswith("@"):
        if every := times.parse_duration(text[1:]):
            return Moment(every=every)
        raise ValueError("has no multiples of zero; write @1h for the next full hour")
    if (offset := _offset(text, toward)) is not None:
        return Moment(offset=offset)
    if text and (match := _LOCAL.fullmatch(text)):
        return _local_moment(match, toward)
    try:
        return Moment(times.parse_instant(text))
    except ValueError as error:
        out_of_range = str(error).startswith("is outside")
        near = similar_words(text, ("now", *_DAYS))
        meant = f"did you mean {near[0]}? {_FORMS}" if near else _FORMS
        raise ValueError(str(error) if out_of_range else f"is not a time; {meant}") from None


def _offset(text: str, toward: int) -> int | None:
    """Return the distance from now (µs) that is written; None if it is something else.

    :raises ValueError: it is a distance, but not a valid one.
    """
    if text[:1] in {"+", "-"}:
        return int(f"{text[0]}1") * times.parse_duration(text[1:].lstrip())
    if text.endswith(" ago"):
        return -times.parse_duration(text.removesuffix(" ago").rstrip())
    if text.startswith("in "):
        return times.parse_duration(text.removeprefix("in ").lstrip())
    if not text.startswith("P") and not times.is_short_duration(text):
        return None
    length = times.parse_duration(text)
    if toward:
        return toward * length
    plain = text.replace(" ", "")
    raise ValueError(f"is not a time; write -{plain} for the past, +{plain} for the future")


def _local_moment(match: re.Match[str], toward: int) -> Moment:
    """Return the moment of a day, today if none is given, at a time of day, its beginning if none.

    :raises ValueError: there is no such day or time of day, or it is too far away.
    """
    word, hour = (match["day"] or "today").lower(), match["hour"]
    try:
        day = _DAYS[word] if word in _DAYS else date.fromisoformat(word)
        clock = time() if hour is None else time.fromisoformat(f"{hour:0>2}{match['rest']}")
    except ValueError:
        raise ValueError(f"is not a time; {_FORMS}") from None
    if isinstance(day, date) and not _FIRST < day < _LAST:
        raise ValueError("is outside 2000 to 2100")
    return Moment(day=day, clock=clock, toward=0 if match["day"] else toward)


_FIRST = times.to_datetime(times.EARLIEST).date()
_LAST = times.to_datetime(times.LATEST - times.DAY).date()
"""The first and the last day are not parsed, because they are outside in some zones."""
