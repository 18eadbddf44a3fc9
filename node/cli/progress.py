"""Report progress on standard error: a status line on a terminal, else a line for each change."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from node.cli.output import printable_text, sanitise_line

_FALLBACK_COLUMNS = 80


class Progress:
    """Prints what the command is waiting for; nothing if ``quiet``."""

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        """Write to ``stream``, by default standard error."""
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self.terminal = self._stream.isatty()
        self._shown = ""

    def status(self, text: str, phase: str) -> None:
        """Replace the status line; if this is not a terminal, print a line for each new phase."""
        if self._quiet:
            return
        if self.terminal:
            self._write("\r\x1b[2K" + printable_text(text)[: self._columns() - 1])
            self._shown = text
        elif phase != self._shown:
            self._write(printable_text(text) + "\n")
            self._shown = phase

    def note(self, text: str) -> None:
        """Print lines that stay on the screen."""
        if not self._quiet:
            self.clear()
            self._write("".join(sanitise_line(line) + "\n" for line in text.splitlines()))

    def clear(self) -> None:
        """Erase the status line from the terminal."""
        if self.terminal and self._shown:
            self._write("\r\x1b[2K")
        self._shown = ""

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _FALLBACK_COLUMNS
        except OSError:
            return _FALLBACK_COLUMNS
