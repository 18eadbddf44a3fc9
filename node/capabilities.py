"""What this host can do: the tests and tools it knows, and which of the tools are installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from node.model.errors import FieldFault, InvalidDocument, ToolUnavailable
from node.model.wire.fields import FROM_OUTSIDE
from node.model.wire.validation import faults_of
from node.plugins import registry
from node.plugins.contracts import Metric, Result, Test, Tool


class Capabilities:
    """Tests and tools by name; what is installed is looked up when it is asked for."""

    def __init__(self, which: Callable[[str], str | None] = shutil.which) -> None:
        """``which(program)`` finds a program on the PATH."""
        self._which = which
        self.tests: Mapping[str, Test] = registry.tests()
        self.tools: Mapping[str, Tool] = registry.tools()
        self.unusable: tuple[tuple[str, str, str], ...] = tuple(
            (each.group, each.name, f"{each.distribution} {each.version}: {each.fault}")
            for each in registry.foreign()
            if each.fault is not None
        )

    @property
    def resources(self) -> frozenset[str]:
        """What runs of some test may need of nodes."""
        return frozenset(name for test in self.tests.values() for name in test.resources)

    def test(self, name: str, pointer: str = "/test/type") -> Test:
        """The test of this name.

        :raises InvalidDocument: there is none; names those there are.
        """
        if name not in self.tests:
            known = ", ".join(sorted(self.tests))
            fault = FieldFault(pointer, f"there is no test {name!r}; there are: {known}")
            raise InvalidDocument([fault])
        return self.tests[name]

    def spec(self, test: Test, document: dict[str, Any], pointer: str = "/test/spec") -> Any:
        """A spec parsed and checked.

        :raises InvalidDocument: with a pointer to each wrong field.
        """
        try:
            return test.spec_model.model_validate(document, context=FROM_OUTSIDE)
        except ValidationError as error:
            raise InvalidDocument(faults_of(error, test.spec_model, pointer)) from None

    def metrics(self, name: str, result: Result) -> tuple[Metric, ...]:
        """The figures of a stored result; none of one that this version cannot read."""
        test = self.tests.get(name)
        if test is None:
            return ()
        try:
            return test.metrics(result)
        except ValidationError:
            return ()

    def missing(self, tool: Tool) -> str | None:
        """What the tool lacks on this host, and the package that brings it; None if nothing."""
        needed = tool.requirement
        if needed is None or self._which(needed.program) is not None:
            return None
        return f"{needed.program} is not installed; apt install {needed.package}"

    def offered(self, test: str) -> tuple[str, ...]:
        """Names of the installed tools for a test, best first."""
        return tuple(tool.name for tool in registry.tools_for(test) if self.missing(tool) is None)

    def why_none(self, test: str) -> str:
        """Why no tool is offered for a test: what to install."""
        return (
            "; ".join(f"{tool.name}: {self.missing(tool)}" for tool in registry.tools_for(test))
            or "no tool is known for it"
        )

    def choose(self, test: str, preferred: tuple[str, ...], offers: list[tuple[str, ...]]) -> Tool:
        """The first preferred tool that all offer, else the best one that all offer.

        :raises ToolUnavailable: there is none.
        """
        candidates = [
            tool for tool in registry.tools_for(test) if not preferred or tool.name in preferred
        ]
        if preferred:
            candidates.sort(key=lambda tool: preferred.index(tool.name))
        for tool in candidates:
            if all(tool.name in offer for offer in offers):
                return tool
        asked = f" among {', '.join(preferred)}" if preferred else ""
        msg = f"no tool{asked} for {test} that every participant has"
        raise ToolUnavailable(msg)

    def agree(
        self, test: str, preferred: tuple[str, ...], offers: list[tuple[str, ...]], spec: Any
    ) -> tuple[str, int]:
        """The name of the tool that :meth:`choose` gives, and the duration it needs for ``spec``.

        :raises ToolUnavailable: there is none.
        """
        tool = self.choose(test, preferred, offers)
        return tool.name, tool.duration(self.spec(self.test(test), spec))

    def needs_port(self, test: str, tool: str, spec: dict[str, Any], participant: int) -> bool:
        """Whether this tool needs a port for that participant's part.

        :raises InvalidDocument: there is no such tool here.
        """
        if tool not in self.tools:
            raise InvalidDocument([FieldFault("/tool", f"there is no tool {tool!r} here")])
        parsed = self.spec(self.test(test), spec)
        return self.tools[tool].needs_port(parsed, participant)
