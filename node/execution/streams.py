"""Streams of program output, read as it comes and bounded."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import IO

RECORD_BYTES_MAX = 50_000
RECORDS_WAITING_MAX = 200

CHUNK = 65_536  # what a pipe holds by default
_RS = b"\x1e"


class OutputStream:
    """An output stream, read as it comes; what exceeds ``kept_max`` bytes is discarded."""

    def __init__(self, pipe: IO[bytes], kept_max: int) -> None:
        """Read as soon as there is output; needs a running event loop."""
        self.kept = bytearray()
        self.truncated = False
        self.grew = asyncio.Event()
        self.ended = asyncio.Event()
        self._pipe = pipe
        self._kept_max = kept_max
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(pipe.fileno(), self._read)

    def _read(self) -> None:
        try:
            chunk = os.read(self._pipe.fileno(), CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            self.close()
            return
        self._take(chunk)
        self.grew.set()

    def _take(self, chunk: bytes) -> None:
        room = self._kept_max - len(self.kept)
        self.kept += chunk[:room]
        self.truncated = self.truncated or len(chunk) > room

    def close(self) -> None:
        """Stop reading; safe to call twice."""
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()
        self.ended.set()
        self.grew.set()


class RecordStream(OutputStream):
    """A stream whose lines that begin with RS are records (RFC 7464), handed out as they come.

    A record longer than ``RECORD_BYTES_MAX`` is cut, and records that arrive while
    ``RECORDS_WAITING_MAX`` wait are discarded: there is no back pressure on a program, so a flood
    of records must not cost memory.
    """

    def __init__(self, pipe: IO[bytes], kept_max: int) -> None:
        super().__init__(pipe, kept_max)
        self.records: deque[bytes] = deque()
        self._record: bytearray | None = None  # the record in progress
        self._line_begins = True

    def _take(self, chunk: bytes) -> None:
        for line in chunk.splitlines(keepends=True):
            if self._line_begins and line.startswith(_RS):
                self._record = bytearray()
            if self._record is None:
                super()._take(line)
            else:
                self._record += line[: RECORD_BYTES_MAX - len(self._record)]
            self._line_begins = line.endswith(b"\n")
            if self._line_begins and self._record is not None:
                self._hand_out(bytes(self._record))
                self._record = None

    def _hand_out(self, record: bytes) -> None:
        if len(self.records) < RECORDS_WAITING_MAX:
            self.records.append(record.removeprefix(_RS).rstrip(b"\n"))
        else:
            self.truncated = True
