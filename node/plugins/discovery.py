"""Plugins of other distributions, found by their entry points. Pure but for imports.

A distribution offers a test, a tool or an archiver as an entry point of the group ``parley.tests``,
``parley.tools`` or ``parley.archivers``, by the plugin's own name::

    [project.entry-points."parley.tests"]
    wakeup = "parley_wakeup.test:TEST"

A plugin that cannot be used is listed with the reason and left out: it must not stop the node, on
which others measure with other plugins.
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
"""The contract of each group of entry points."""

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
"""Names of plugins: they occur in addresses, attributes and commands."""


@dataclass(frozen=True)
class DiscoveredPlugin:
    """An entry point: the plugin it refers to, or why that cannot be used."""

    group: str
    name: str
    distribution: str
    version: str
    plugin: Any = None
    fault: str | None = None


@functools.cache
def find_plugins(group: str) -> tuple[DiscoveredPlugin, ...]:
    """Return the entry points of a group, by name; they are searched and imported once."""
    points = sorted(metadata.entry_points(group=group), key=lambda point: (point.name, point.value))
    return tuple(_load_plugin(group, point) for point in points)


def _load_plugin(group: str, point: metadata.EntryPoint) -> DiscoveredPlugin:
    distribution = point.dist.name if point.dist else "?"
    version = point.dist.version if point.dist else "?"
    try:
        plugin = point.load()
    except Exception as error:  # noqa: BLE001 - a third-party module may raise anything on import
        fault = f"{point.value} cannot be imported: {type(error).__name__}: {error}"
        return DiscoveredPlugin(group, point.name, distribution, version, fault=fault)
    violation = contract_violation(GROUPS[group], point.name, plugin)
    usable = None if violation else plugin
    return DiscoveredPlugin(group, point.name, distribution, version, usable, violation)


def check_plugins(group: str, own: Sequence[Any]) -> list[DiscoveredPlugin]:
    """Return the entry points of a group, checked against each other and Parley's own plugins.

    The first plugin to use a name keeps it and later ones are left out; otherwise the choice
    between them would depend on the order of installation.
    """
    owners = {plugin.name: "Parley itself" for plugin in own}
    plugins = []
    for each in find_plugins(group):
        owner = owners.get(each.name)
        if each.fault is None and owner is not None:
            fault = f"{owner} has one called {each.name}; it needs another name"
            plugins.append(dataclasses.replace(each, plugin=None, fault=fault))
            continue
        if each.fault is None:
            owners[each.name] = each.distribution
        plugins.append(each)
    return plugins


def by_name(group: str, own: Sequence[Any]) -> Mapping[str, Any]:
    """Return Parley's own plugins of a kind and the usable ones of other distributions, by name."""
    others = {each.name: each.plugin for each in check_plugins(group, own) if each.fault is None}
    return MappingProxyType({plugin.name: plugin for plugin in own} | others)


def contract_violation(contract: type[Any], name: str, plugin: object) -> str | None:
    """Return why an object cannot be a plugin of this name under this contract; None if it can.

    This checks only what is needed to list the plugin; ``conformity`` checks the rest.
    """
    if not NAME.fullmatch(name):
        return f"the name {name!r} has characters other than a-z, 0-9 and -, or more than 40"
    if isinstance(plugin, type):
        return f"it is the class {plugin.__name__}; the entry point must lead to an instance"
    required = {*contract.__annotations__, *(it for it in vars(contract) if not it.startswith("_"))}
    lacking = sorted(attribute for attribute in required if not hasattr(plugin, attribute))
    if lacking:
        return f"it has no {', '.join(lacking)}: see {contract.__name__} in node.plugins.contracts"
    own = getattr(plugin, "name", None)
    return None if own == name else f"it calls itself {own!r}, its entry point {name!r}"
