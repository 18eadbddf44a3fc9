"""Archivers that deliver wherever their spec says: only holders of the operator's token set it."""

from __future__ import annotations

from node.model.wire.fields import Document
from node.plugins.contracts import ArchivingHost


class UnrestrictedArchiver:
    """An archiver that needs nothing of its host that the owner would have to allow."""

    def refusal(self, spec: Document, host: ArchivingHost) -> tuple[str, str] | None:
        """Return None: nothing is refused."""
        return None
