"""The catalog of tests and tools on this host, and which of the tools are installed."""

from __future__ import annotations

import ipaddress
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from node.execution import privileges
from node.execution.privileges import ProcessPrivileges
from node.model.contexts import Context, ContextKind
from node.model.errors import FieldFault, InvalidDocument, ToolUnavailable
from node.model.reason import Reason
from node.model.reasons import (
    no_common_tool,
    program_not_installed,
    program_too_old,
    target_link_local,
    tool_cannot_measure,
    tool_not_bindable,
    tool_reaches_unchecked,
)
from node.model.similar import suggestion
from node.model.task_terms import TaskTerms
from node.model.wire.fields import FROM_OUTSIDE
from node.model.wire.validation import faults_of
from node.plugins import registry
from node.plugins.contracts import (
    Bindable,
    Metric,
    Requirement,
    Result,
    StreamingTest,
    Test,
    Tool,
    unchecked,
    version_numbers,
)
from node.plugins.figures import usable_metrics

_WITH_ZONES = 6
"""The version of IP whose link-local addresses need an interface."""


def unfit_tool(tool: Tool, spec: Any) -> Reason | None:
    """Return why a tool measures this spec on no host; None if it measures it."""
    why = tool.can(spec)
    return None if why is None else tool_cannot_measure(why)


def unchecked_tool(tool: Tool, spec: Any) -> Reason | None:
    """Return why a tool does not measure ``spec`` for another node's task; None if it does."""
    why = unchecked(tool, spec)
    return None if why is None else tool_reaches_unchecked(why)


def _zoneless(test: Test | None, spec: Any, context: Context | None) -> Reason | None:
    """Return why a link-local target cannot be measured from here; None if it can, or is none."""
    if test is None or (context is not None and context.kind is ContextKind.INTERFACE):
        return None
    targets = set(test.hosts(spec)) - set(test.participants(spec))
    local = next((host for host in sorted(targets) if _is_link_local(host)), None)
    return None if local is None else target_link_local(local)


def _is_link_local(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.version == _WITH_ZONES and address.is_link_local


class Capabilities:
    """Tests and tools by name; installation is checked when it is needed."""

    def __init__(
        self,
        which: Callable[[str], str | None] = shutil.which,
        standing: Callable[[], ProcessPrivileges] = privileges.process_privileges,
    ) -> None:
        """``which(program)`` finds a program on the PATH; ``standing()`` are our privileges."""
        self._which = which
        self._standing = standing
        self._version_of: Callable[[Requirement], str | None] = lambda _: None
        self.tests: Mapping[str, Test] = registry.tests()
        self.tools: Mapping[str, Tool] = registry.tools()
        self.unusable: tuple[tuple[str, str, str], ...] = tuple(
            (each.group, each.name, f"{each.distribution} {each.version}: {each.fault}")
            for each in registry.third_party_plugins()
            if each.fault is not None
        )

    def assume_all(self) -> None:
        """Treat every program as installed and every privilege as held, for a simulated host."""
        self._which = "/usr/bin/{}".format
        self._standing = lambda: privileges.UNLIMITED

    def run_with(self, standing: ProcessPrivileges) -> None:
        """Set the privileges with which tools are started here."""
        self._standing = lambda: standing

    def know_versions(self, version_of: Callable[[Requirement], str | None]) -> None:
        """Take versions of programs from ``version_of``, and have it ask those that are there."""
        self._version_of = version_of
        for tool in self.tools.values():
            self.missing_program(tool)

    @property
    def resources(self) -> frozenset[str]:
        """The counted resources that runs of any test may need."""
        return frozenset(name for test in self.tests.values() for name in test.resources)

    def test(self, name: str, pointer: str = "/test/type") -> Test:
        """Return the test of this name.

        :raises InvalidDocument: there is none; lists the existing ones.
        """
        if name not in self.tests:
            fault = f"there is no test {name!r}; {suggestion(name, sorted(self.tests))}"
            raise InvalidDocument([FieldFault(pointer, fault)])
        return self.tests[name]

    def spec(self, test: Test, document: dict[str, Any], pointer: str = "/test/spec") -> Any:
        """Parse and check a spec.

        :raises InvalidDocument: with a pointer to each wrong field.
        """
        try:
            return test.spec_model.model_validate(document, context=FROM_OUTSIDE)
        except ValidationError as error:
            raise InvalidDocument(faults_of(error, test.spec_model, pointer)) from None

    def metrics(self, name: str, result: Result, *, interval: bool = False) -> tuple[Metric, ...]:
        """Return the figures of a stored result, or of an interval's.

        The tuple is empty if this version cannot read the result, or its plugin fails: one bad row
        must not make a list unreadable.
        """
        test = self.tests.get(name)
        if test is None:
            return ()
        try:
            if not interval:
                return usable_metrics(test.metrics(result))
            if not isinstance(test, StreamingTest):
                return ()
            return usable_metrics(test.interval_metrics(result))
        except Exception:  # noqa: BLE001 - any plugin error was already reported when the run ended
            return ()

    def missing_program(self, tool: Tool) -> Reason | None:
        """Return which program the tool lacks on this host, with its package; None if none."""
        requirement = tool.requirement
        if requirement is None:
            return None
        programs = ((requirement.program, requirement.package), *requirement.others)
        for program, package in programs:
            if self._which(program) is None:
                return program_not_installed(program, package)
        return None if requirement.least is None else self._too_old(requirement, requirement.least)

    def _too_old(self, requirement: Requirement, least: str) -> Reason | None:
        version = self._version_of(requirement)
        if version is None or version_numbers(version) >= version_numbers(least):
            return None
        return program_too_old(requirement.program, version, least, requirement.package)

    def binding_refusal(self, tool: Tool, context: Context | None) -> Reason | None:
        """Return why a tool cannot measure from a context; None if it can, or there is none."""
        if context is None or not context.bound:
            return None
        if isinstance(tool, Bindable) and context.kind in tool.binds:
            return None
        return tool_not_bindable(context.kind)

    def refusal(self, tool: Tool, spec: Any) -> Reason | None:
        """Return why this host does not run the tool with this spec; None if it does.

        This is about the host: the tool is not installed, or lacks a privilege that it needs.
        """
        requirement = tool.requirement
        missing = self.missing_program(tool)
        if missing is not None or requirement is None:
            return missing
        control = requirement.congestion(spec)
        standing = self._standing()
        lacks = privileges.missing_congestion_control(control, standing) if control else None
        if lacks is not None:
            return lacks
        privilege = requirement.privilege(spec)
        if privilege is None:
            return None
        path = self._which(requirement.privileged or requirement.program)
        grant = privileges.grant_of(path) if path else privileges.Grant()
        return privileges.missing_privilege(requirement.program, privilege, standing, grant)

    def offered_tools(self, test: str) -> tuple[str, ...]:
        """Return the names of the installed tools for a test, best first."""
        return tuple(
            tool.name for tool in registry.tools_for(test) if not self.missing_program(tool)
        )

    def offers(
        self,
        test: str,
        spec: Any,
        asked: Collection[str] = (),
        context: Context | None = None,
        *,
        foreign: bool = False,
    ) -> tuple[tuple[str, ...], dict[str, Reason]]:
        """Return the tools that would measure ``spec`` here, best first, and why others would not.

        If any tools are ``asked`` for, only these; with a ``context``, those that measure from it;
        of a ``foreign`` task, one that another node leads, those that reach only checked targets.
        """
        tools = [tool for tool in registry.tools_for(test) if not asked or tool.name in asked]
        zoneless = None if foreign else _zoneless(self.tests.get(test), spec, context)
        reasons = {
            tool.name: unfit_tool(tool, spec)
            or self.refusal(tool, spec)
            or self.binding_refusal(tool, context)
            or zoneless
            or (unchecked_tool(tool, spec) if foreign else None)
            for tool in tools
        }
        offered = tuple(name for name, reason in reasons.items() if reason is None)
        return offered, {name: reason for name, reason in reasons.items() if reason is not None}

    def choose(
        self, test: str, preferred: tuple[str, ...], offers: Sequence[tuple[str, ...]], spec: Any
    ) -> Tool:
        """Return the first preferred tool that all offer and that can measure; or else the best.

        :raises ToolUnavailable: there is none; says which of the preferred ones cannot, and why.
        """
        candidates = [
            tool for tool in registry.tools_for(test) if not preferred or tool.name in preferred
        ]
        if preferred:
            candidates.sort(key=lambda tool: preferred.index(tool.name))
        unable = []
        for tool in candidates:
            if (reason := unfit_tool(tool, spec)) is not None:
                unable.append(reason)
            elif all(tool.name in offer for offer in offers):
                return tool
        raise ToolUnavailable(no_common_tool(test, preferred, unable))

    def agree(self, terms: TaskTerms) -> TaskTerms:
        """Return the terms of a task with the tool for its participants, and the duration with it.

        One that has not answered (again) counts with the tools that it offered before, if any.

        :raises ToolUnavailable: there is none.
        """
        spec = self.spec(self.test(terms.test), terms.spec)
        offers = [each.tools for each in terms.participants if each.accepted or each.tools]
        tool = self.choose(terms.test, terms.tools, offers, spec)
        return replace(terms, tool=tool.name, duration=tool.duration(spec))

    def needs_port(self, test: str, tool: str, spec: dict[str, Any], participant: int) -> int:
        """Return how many consecutive ports this tool needs for that participant's part.

        :raises InvalidDocument: there is no such tool here.
        """
        return self._tool(tool).needs_port(self.spec(self.test(test), spec), participant)

    def duration_with(self, test: str, tool: str, spec: dict[str, Any]) -> int:
        """Return how long a run with this tool takes (microseconds).

        :raises InvalidDocument: there is no such tool here.
        """
        return self._tool(tool).duration(self.spec(self.test(test), spec))

    def durations(self, test: str, spec: Any, asked: Collection[str] = ()) -> dict[str, int]:
        """Return how long a run takes with each tool that can measure ``spec`` (microseconds).

        If any tools are ``asked`` for, only with these.
        """
        return {
            tool.name: tool.duration(spec)
            for tool in registry.tools_for(test)
            if (not asked or tool.name in asked) and tool.can(spec) is None
        }

    def _tool(self, name: str) -> Tool:
        if name not in self.tools:
            raise InvalidDocument([FieldFault("/tool", f"there is no tool {name!r} here")])
        return self.tools[name]
