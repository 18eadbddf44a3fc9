"""Plugins of other distributions, found by their entry points. Pure but for imports.

A distribution offers a test, a tool or an archiver as an entry point of the group ``parley.tests``,
``parley.tools`` or ``parley.archivers``, by the plugin's own name::

    [project.entry-points."parley.tests"]
    wakeup = "parley_wakeup.test:TEST"

One that cannot be used is told with its reason and left out: it must not stop the node, on which
others measure with other plugins.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from types import MappingProxyType
from typing import Any

from node.plugins.contracts import Archiver, Test, Tool

GROUPS: Mapping[str, type[Any]] = MappingProxyType(
    {"parley.tests": Test, "parley.tools": Tool, "parley.archivers": Archiver}
)
"""What each group of entry points must offer."""

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
"""Names of plugins: they stand in addresses, attributes and commands."""


@dataclass(frozen=True)
class DiscoveredPlugin:
    """An entry point: the plugin it leads to, or why that cannot be used."""

    group: str
    name: str
    distribution: str
    version: str
    plugin: Any = None
    fault: str | None = None


@functools.cache
def find_plugins(group: str) -> tuple[DiscoveredPlugin, ...]:
    """The entry points of a group, by name; they are looked for and imported once."""
    points = sorted(metadata.entry_points(group=group), key=lambda point: (point.name, point.value))
    return tuple(_loaded(group, point) for point in points)


def _loaded(group: str, point: metadata.EntryPoint) -> DiscoveredPlugin:
    distribution = point.dist.name if point.dist else "?"
    version = point.dist.version if point.dist else "?"
    try:
        plugin = point.load()
    except Exception as error:  # noqa: BLE001 - whatever a stranger's module raises when imported
        fault = f"{point.value} cannot be imported: {type(error).__name__}: {error}"
        return DiscoveredPlugin(group, point.name, distribution, version, fault=fault)
    unfitting = contract_violation(GROUPS[group], point.name, plugin)
    kept = None if unfitting else plugin
    return DiscoveredPlugin(group, point.name, distribution, version, kept, unfitting)


def check_plugins(group: str, own: Sequence[Any]) -> list[DiscoveredPlugin]:
    """The entry points of a group, beside Parley's own plugins of that kind.

    Whoever comes second with a name is left out: two that bring one would take turns.
    """
    taken = {plugin.name: "Parley itself" for plugin in own}
    found_here = []
    for each in find_plugins(group):
        owner = taken.get(each.name)
        if each.fault is None and owner is not None:
            fault = f"{owner} has one called {each.name}; it needs another name"
            found_here.append(dataclasses.replace(each, plugin=None, fault=fault))
            continue
        if each.fault is None:
            taken[each.name] = each.distribution
        found_here.append(each)
    return found_here


def by_name(group: str, own: Sequence[Any]) -> Mapping[str, Any]:
    """Parley's own plugins of a kind, and those of others that can be used."""
    others = {each.name: each.plugin for each in check_plugins(group, own) if each.fault is None}
    return MappingProxyType({plugin.name: plugin for plugin in own} | others)


def contract_violation(contract: type[Any], name: str, plugin: object) -> str | None:
    """Why an object cannot be a plugin of this name under this contract; None if it can.

    Only what is needed to be listed at all; ``conformity`` looks at the rest.
    """
    if not NAME.fullmatch(name):
        return f"the name {name!r} has other characters than a-z, 0-9 and -, or over 40"
    if isinstance(plugin, type):
        return f"it is the class {plugin.__name__}; the entry point must lead to an instance"
    wanted = {*contract.__annotations__, *(it for it in vars(contract) if not it.startswith("_"))}
    lacking = sorted(attribute for attribute in wanted if not hasattr(plugin, attribute))
    if lacking:
        return f"it has no {', '.join(lacking)}: see {contract.__name__} in node.plugins.contracts"
    own = getattr(plugin, "name", None)
    return None if own == name else f"it calls itself {own!r}, its entry point {name!r}"
