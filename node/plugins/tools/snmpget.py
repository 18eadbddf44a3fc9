"""The programs of net-snmp, which ask agents of SNMP, driven by a program of ours. Pure.

Why these, and no library: they are what operators compare with, speak each protocol of SNMPv3, are
in every distribution, and are started like all other tools, so that no node carries a library for a
test that few use.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import Field

from node.model.errors import ToolOutputError
from node.model.times import SECOND
from node.model.wire.fields import Document
from node.plugins.contracts import Command, Output, PartContext, Requirement, Result
from node.plugins.fields import CountField, ForeignText, texts
from node.plugins.outline import AROUND, ClientTool
from node.plugins.ownprograms import MICROSECOND_NS, own_program
from node.plugins.reading import document_of
from node.plugins.tests.snmp import COLUMNS, SnmpSpec, result_between

_ANSWERS = 4
"""The answers that are waited for at most: two for the name of the interface, one each reading."""
_USER_VERSION = "3"

_Value = Annotated[int, Field(ge=0, lt=2**64)] | ForeignText | None


class _Reading(Document):
    at_ns: CountField
    values: dict[str, _Value] = Field(max_length=len(COLUMNS) + 1)


class _Readings(Document):
    index: CountField | None = None
    readings: tuple[_Reading, ...] = Field((), max_length=2)
    failure: ForeignText | None = None


class SnmpGetTool(ClientTool):
    """``snmpget`` and ``snmpbulkwalk``."""

    name = "snmpget"
    tests: tuple[str, ...] = ("snmp",)
    requirement: Requirement | None = Requirement(
        "snmpget", "snmp", ("snmpget", "--version"), others=(("snmpbulkwalk", "snmp"),)
    )
    tried: tuple[str, ...] = ("5.9.3",)

    def duration(self, spec: SnmpSpec) -> int:
        """Return set-up, the time between the readings, and that of all answers (µs)."""
        return AROUND + spec.duration + _ANSWERS * spec.timeout + SECOND

    def command(self, part: PartContext) -> Command:
        """Return our program; what it needs of secrets goes to its standard input."""
        spec: SnmpSpec = part.spec
        arguments: dict[str, object] = {
            "address": part.addresses.get(spec.dest, spec.dest),
            "port": spec.port,
            "ip_version": spec.ip_version,
            "interface": spec.interface,
            "columns": COLUMNS,
            "first_ns": part.starts * MICROSECOND_NS,
            "between_ns": spec.duration * MICROSECOND_NS,
            "timeout_ns": spec.timeout * MICROSECOND_NS,
        }
        stdin = json.dumps(settings_of(spec)).encode()
        return own_program("snmp_counters.py", arguments, stdin=stdin)

    def read(self, part: PartContext, output: Output) -> Result:
        """Read two readings, and judge what is between them.

        :raises ToolOutputError: the agent did not answer, or the output is wrong.
        """
        told = document_of(output, "snmpget", _Readings)
        if told.failure is not None:
            raise ToolOutputError(f"snmpget: {told.failure}")
        if told.index is None or len(told.readings) != len(("before", "after")):
            raise ToolOutputError("snmpget: there are no two readings")
        first, second = told.readings
        took_ms = (second.at_ns - first.at_ns) / 1e6
        if took_ms <= 0:
            raise ToolOutputError("snmpget: the second reading is not later than the first one")
        result = result_between(told.index, first.values, second.values, took_ms)
        return result.model_dump(mode="json")


def settings_of(spec: SnmpSpec) -> dict[str, str]:
    """Return the settings of net-snmp's programs, with the secrets themselves."""
    secrets = texts({str(name): value for name, value in spec.credentials.items()})
    settings: dict[str, Any] = {"version": spec.version}
    if spec.version != _USER_VERSION:
        return {**settings, "community": secrets.get("community", "public")}
    level = "authPriv" if "privacy" in secrets else "authNoPriv"
    settings |= {"user": spec.user, "level": level if secrets else "noAuthNoPriv"}
    if "authentication" in secrets:
        settings |= {"authentication_protocol": spec.authentication, **secrets}
    if "privacy" in secrets:
        settings["privacy_protocol"] = spec.privacy
    return settings


TOOL = SnmpGetTool()
