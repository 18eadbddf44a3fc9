"""Descriptions of tools, archivers and contexts as pScheduler writes them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from node.plugins.contracts import Tool
from node.plugins.registry import tools
from node.pscheduler.tests.contract import MAINTAINER, Document
from node.pscheduler.tests.registry import LANGUAGES

VERSION = "1.0"

OTHER_NAMES: Mapping[str, str] = {
    "idleex": "idle",
    "idlebgm": "idlebg",
    "psresponse": "http",
}
"""Tests of pScheduler that are a test of ours with another name."""

ARCHIVERS: Mapping[str, str] = {
    "bitbucket": "Drops what it is given",
    "failer": "Drops what it is given, as bitbucket does; it never fails",
    "http": "Sends results to a web server",
    "kafka": "Sends results to a Kafka cluster",
    "postgresql": "Writes results into a table of Postgres",
    "rabbitmq": "Sends results to an exchange of RabbitMQ",
    "syslog": "Writes results into the log of the host",
    "tcp": "Sends results over TCP",
    "udp": "Sends results in datagrams",
}

CONTEXTS: Mapping[str, str] = {"linuxnns": "Measures from a network namespace of Linux"}


def tool_enumeration(name: str, base: str) -> Document:
    """Return the object that describes a tool, even one that is not installed."""
    tool = tools().get(name)
    return {
        **_common_members(name, f"{name}, as it is installed on this host", f"{base}/tools/{name}"),
        "tests": [] if tool is None else measured_tests(tool),
        "preference": 0 if tool is None else tool.preference,
    }


def measured_tests(tool: Tool) -> list[str]:
    """Return the tests of pScheduler that a tool of ours measures."""
    return [name for name in LANGUAGES if OTHER_NAMES.get(name, name) in tool.tests]


def archiver_enumeration(name: str, base: str) -> Document:
    """Return the object that describes an archiver, with its name and ``href``."""
    return _common_members(name, ARCHIVERS[name], f"{base}/archivers/{name}")


def context_enumeration(name: str, base: str) -> Document:
    """Return the object that describes a context, with its name and ``href``."""
    return _common_members(name, CONTEXTS[name], f"{base}/contexts/{name}")


def _common_members(name: str, description: str, href: str) -> Document:
    return {
        "schema": 1,
        "name": name,
        "description": description,
        "version": VERSION,
        "maintainer": dict(MAINTAINER),
        "href": href,
    }
