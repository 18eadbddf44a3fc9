"""Writes all that is made from the code into the folder ``docs/generated``.

``parts`` are included by the pages of the reference; ``commands`` are pages of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from docs.generator import (
    api,
    commands,
    documents,
    metrics,
    plugins,
    predicates,
    repository,
    settings,
    views,
)
from node.mesh.document import MeshDocument
from node.model.host_limits.document import LimitsDocument

_LIMITS: Final = {
    "LimitsDocument": "The file",
    "WhoDocument": "[who.NAME]",
    "RuleDocument": "[[rule]]",
    "MostDocument": "most",
    "OpeningDocument": "when",
    "TargetsDocument": "[targets.NAME]",
    "CapDocument": "[[cap]]",
    "PrefixDocument": "prefix",
}
_MESH: Final = {
    "MeshDocument": "The file",
    "MatchingGroup": "A group of nodes that match",
    "PoolGroup": "A group of the nodes of a pool",
    "HostGroup": "A group of hosts that are not nodes",
    "TestEntry": "[tests.NAME]",
    "ScheduleTerms": "[schedules.NAME]",
    "Measure": "[[measure]]",
    "MeshDependency": "after",
}

PARTS: Final[Mapping[str, Callable[[], str]]] = {
    "archivers": plugins.archiver_sections,
    "commands": commands.command_table,
    "limits": lambda: documents.document_tables(LimitsDocument, _LIMITS),
    "mesh-file": lambda: documents.document_tables(MeshDocument, _MESH),
    "metrics": metrics.metrics_table,
    "operations": api.operations,
    "options": commands.common_options,
    "policies": repository.policies,
    "predicates": predicates.description,
    "problems": api.problems,
    "settings": settings.settings_table,
    "specs": plugins.spec_sections,
    "tools": plugins.tool_table,
    "views": views.views_table,
}
"""The generated parts by name, as ``{include} ../generated/parts/NAME.md`` has them."""


def write_pages(directory: Path) -> None:
    """Write what has changed, and remove pages of commands that are gone."""
    pages = {f"parts/{name}.md": make() for name, make in PARTS.items()}
    pages |= {f"commands/{name}.md": text for name, text in commands.command_pages().items()}
    for name, text in pages.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
    for file in directory.rglob("*.md"):
        if file.relative_to(directory).as_posix() not in pages:
            file.unlink()
