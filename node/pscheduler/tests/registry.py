"""All languages, by the name of their test. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from node.pscheduler.tests import (
    clock,
    dns,
    http,
    idle,
    idlebgm,
    idleex,
    latency,
    latencybg,
    mtu,
    psresponse,
    rtt,
    simplestream,
    throughput,
    trace,
)
from node.pscheduler.tests.contract import Language

_ALL = (
    clock.LANGUAGE,
    dns.LANGUAGE,
    http.LANGUAGE,
    idle.LANGUAGE,
    idlebgm.LANGUAGE,
    idleex.LANGUAGE,
    latency.LANGUAGE,
    latencybg.LANGUAGE,
    mtu.LANGUAGE,
    psresponse.LANGUAGE,
    rtt.LANGUAGE,
    simplestream.LANGUAGE,
    throughput.LANGUAGE,
    trace.LANGUAGE,
)

LANGUAGES: Mapping[str, Language] = MappingProxyType(
    {language.name: language for language in sorted(_ALL, key=lambda each: each.name)}
)
"""The languages by name, in the order of names."""
