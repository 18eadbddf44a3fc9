"""What this host can do: the tests and tools it knows, and which of the tools are installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import ValidationError

from node.capability import privileges
from node.capability.privileges import ProcessPrivileges
from node.model.contexts import Context
from node.model.errors import FieldFault, InvalidDocument, ToolUnavailable
from node.model.wire.fields import FROM_OUTSIDE
from node.model.wire.validation import faults_of
from node.plugins import registry, series
from node.plugins.contracts import Bindable, Metric, Result, StreamingTest, Test, Tool


@cache
def program_version() -> str:
    """The installed version of Parley, for cards, descriptions, and our own measuring programs."""
    try:
        return version("parley-scheduler")
    except PackageNotFoundError:
        return "0"


class Capabilities:
    """Tests and tools by name; what is installed is looked up when it is asked for."""

    def __init__(
        self,
        which: Callable[[str], str | None] = shutil.which,
        standing: Callable[[], ProcessPrivileges] = privileges.process_privileges,
    ) -> None:
        """``which(program)`` finds a program on the PATH; ``standing()`` is what we may do."""
        self._which = which
        self._standing = standing
        self.tests: Mapping[str, Test] = registry.tests()
        self.tools: Mapping[str, Tool] = registry.tools()
        self.unusable: tuple[tuple[str, str, str], ...] = tuple(
            (each.group, each.name, f"{each.distribution} {each.version}: {each.fault}")
            for each in registry.third_party_plugins()
            if each.fault is not None
        )

    def assume_all(self) -> None:
        """Take every program as installed and every privilege as held, as on a simulated host."""
        self._which = "/usr/bin/{}".format
        self._standing = lambda: privileges.UNLIMITED

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

    def metrics(self, name: str, result: Result, *, interval: bool = False) -> tuple[Metric, ...]:
        """The figures of a stored result, or of an interval's.

        None of one that this version cannot read, or on which its plugin stumbles: one bad row
        must not keep a list from being read.
        """
        test = self.tests.get(name)
        if test is None:
            return ()
        try:
            if not interval:
                return series.usable_metrics(test.metrics(result))
            if not isinstance(test, StreamingTest):
                return ()
            return series.usable_metrics(test.interval_metrics(result))
        except Exception:  # noqa: BLE001 - whatever a plugin raises, when the run ended it was told
            return ()

    def missing(self, tool: Tool) -> str | None:
        """What the tool lacks on this host, and the package that brings it; None if nothing."""
        needed = tool.requirement
        if needed is None:
            return None
        for program, package in ((needed.program, needed.package), *needed.others):
            if self._which(program) is None:
                return f"{program} is not installed; apt install {package}"
        return None

    def unbound(self, tool: Tool, context: Context | None) -> str | None:
        """Why a tool cannot measure from a context; None if it can, or none is asked."""
        if context is None or not context.bound:
            return None
        if isinstance(tool, Bindable) and context.kind in tool.binds:
            return None
        return f"cannot be bound to an {context.kind}"

    def refused(self, tool: Tool, spec: Any) -> str | None:
        """Why this host does not run the tool with this spec, though the tool can; None if it does.

        It is not installed, or may not do here what it would have to do.
        """
        needed = tool.requirement
        missing = self.missing(tool)
        if missing is not None or needed is None:
            return missing
        control = needed.congestion(spec)
        lacks = control and privileges.missing_congestion_control(control, self._standing())
        if lacks:
            return lacks
        privilege = needed.privilege(spec)
        if privilege is None:
            return None
        path = self._which(needed.privileged or needed.program)
        grant = privileges.grant_of(path) if path else privileges.Grant()
        return privileges.missing_privilege(needed.program, privilege, self._standing(), grant)

    def offered(self, test: str) -> tuple[str, ...]:
        """Names of the installed tools for a test, best first."""
        return tuple(tool.name for tool in registry.tools_for(test) if self.missing(tool) is None)

    def offers(
        self,
        test: str,
        spec: Any,
        asked: Collection[str] = (),
        context: Context | None = None,
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """Names of the tools that would measure ``spec`` here, best first, and why each other not.

        If any are ``asked`` for, only of these; with a ``context``, those that measure from there.
        """
        tools = [tool for tool in registry.tools_for(test) if not asked or tool.name in asked]
        reasons = {
            tool.name: tool.can(spec) or self.refused(tool, spec) or self.unbound(tool, context)
            for tool in tools
        }
        offered = tuple(name for name, reason in reasons.items() if reason is None)
        return offered, {name: reason for name, reason in reasons.items() if reason is not None}

    def choose(
        self, test: str, preferred: tuple[str, ...], offers: Sequence[tuple[str, ...]], spec: Any
    ) -> Tool:
        """The first preferred tool that can measure ``spec`` and that all offer, else the best one.

        :raises ToolUnavailable: there is none; says which of those asked for cannot, and why.
        """
        candidates = [
            tool for tool in registry.tools_for(test) if not preferred or tool.name in preferred
        ]
        if preferred:
            candidates.sort(key=lambda tool: preferred.index(tool.name))
        unable = []
        for tool in candidates:
            reason = tool.can(spec)
            if reason is not None:
                unable.append(reason)
            elif all(tool.name in offer for offer in offers):
                return tool
        asked = f" among {', '.join(preferred)}" if preferred else ""
        told = f" ({'; '.join(unable)})" if unable else ""
        msg = f"no tool{asked} for {test} that every participant has{told}"
        raise ToolUnavailable(msg)

    def agree(
        self, test: str, preferred: tuple[str, ...], offers: list[tuple[str, ...]], spec: Any
    ) -> tuple[str, int]:
        """The name of the tool that :meth:`choose` gives, and the duration it needs for ``spec``.

        :raises ToolUnavailable: there is none.
        """
        parsed = self.spec(self.test(test), spec)
        tool = self.choose(test, preferred, offers, parsed)
        return tool.name, tool.duration(parsed)

    def needs_port(self, test: str, tool: str, spec: dict[str, Any], participant: int) -> int:
        """How many ports in a row this tool needs for that participant's part.

        :raises InvalidDocument: there is no such tool here.
        """
        if tool not in self.tools:
            raise InvalidDocument([FieldFault("/tool", f"there is no tool {tool!r} here")])
        parsed = self.spec(self.test(test), spec)
        return self.tools[tool].needs_port(parsed, participant)
