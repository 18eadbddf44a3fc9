"""Archivers that deliver wherever their spec says: only who has the operator's token says so."""

from __future__ import annotations

from node.model.wire.fields import Document
from node.plugins.contracts import ArchivingHost


class UnrestrictedArchiver:
    """An archiver that needs nothing of its host that the owner would have to allow."""

    def refusal(self, spec: Document, host: ArchivingHost) -> tuple[str, str] | None:  # noqa: ARG002 - the contract's
        """Nothing is refused."""
        return None
