"""Limits of each program that measures, with all that it starts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

MEBIBYTE: Final = 2**20


@dataclass(frozen=True)
class ToolLimits:
    """The most that one tool may take, with all processes that it starts.

    ``memory``, ``file_size`` and ``disk`` (all its files together) are in bytes; ``processes`` and
    ``open_files`` (of one process) are numbers.
    """

    memory: int = 512 * MEBIBYTE
    processes: int = 64
    file_size: int = 16 * MEBIBYTE
    disk: int = 64 * MEBIBYTE
    open_files: int = 256

    def as_words(self) -> dict[str, int]:
        """Return the limits by name.

        >>> ToolLimits(processes=3).as_words()["processes"]
        3
        """
        return dataclasses.asdict(self)
