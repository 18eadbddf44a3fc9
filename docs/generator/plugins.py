"""The tests with their specs, the tools, and the archivers with theirs."""

from __future__ import annotations

import inspect

from docs.generator.documents import field_table
from docs.generator.markdown import code, page, plain, table
from node.plugins.contracts import Extra
from node.plugins.registry import tests, tools
from node.results.archivers import archivers


def spec_sections() -> str:
    """Return a section for each test: the fields of its spec, and its tools."""
    return page(
        *(
            page(
                f"### {name}",
                plain(test.title),
                field_table(test.spec_model),
                f"Tools, the preferred ones first: {_tools_of(name)}.",
            )
            for name, test in sorted(tests().items())
        )
    )


def _tools_of(test: str) -> str:
    fitting = [tool for tool in tools().values() if test in tool.tests]
    fitting.sort(key=lambda tool: (-tool.preference, tool.name))
    return ", ".join(code(tool.name) for tool in fitting)


def tool_table() -> str:
    """Return the table of the tools, each with the program that it needs."""
    return table(
        ("tool", "tests", "program", "Debian package"),
        (
            (
                code(name),
                ", ".join(code(test) for test in tool.tests),
                code(tool.requirement.program) if tool.requirement else "",
                code(tool.requirement.package) if tool.requirement else "",
            )
            for name, tool in sorted(tools().items())
        ),
    )


def archiver_sections() -> str:
    """Return a section for each archiver: the fields of its spec."""
    return page(
        *(
            page(
                f"## {name}",
                plain(" ".join((inspect.getdoc(type(archiver)) or "").split())),
                f"Its client is the extra `{archiver.extra}`: "
                "[how to install it](../how-to/archives.md#clients-of-archivers)."
                if isinstance(archiver, Extra)
                else "",
                field_table(archiver.spec_model),
            )
            for name, archiver in sorted(archivers().items())
        )
    )
