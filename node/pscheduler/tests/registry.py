"""All languages, by the name of their test. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from node.pscheduler.tests.clock import ClockLanguage
from node.pscheduler.tests.delays import LatencyBgLanguage, LatencyLanguage
from node.pscheduler.tests.dns import DnsLanguage
from node.pscheduler.tests.http import HttpLanguage
from node.pscheduler.tests.idle import IdleBgmLanguage, IdleExLanguage, IdleLanguage
from node.pscheduler.tests.language import Language
from node.pscheduler.tests.mtu import MtuLanguage
from node.pscheduler.tests.psresponse import PsResponseLanguage
from node.pscheduler.tests.rtt import RttLanguage
from node.pscheduler.tests.simplestream import SimplestreamLanguage
from node.pscheduler.tests.throughput import ThroughputLanguage
from node.pscheduler.tests.trace import TraceLanguage

_ALL: tuple[Language, ...] = (
    ClockLanguage(), DnsLanguage(), HttpLanguage(), IdleLanguage(), IdleBgmLanguage(),
    IdleExLanguage(), LatencyLanguage(), LatencyBgLanguage(), MtuLanguage(), PsResponseLanguage(),
    RttLanguage(), SimplestreamLanguage(), ThroughputLanguage(), TraceLanguage(),
)  # fmt: skip

LANGUAGES: Mapping[str, Language] = MappingProxyType(
    {language.name: language for language in sorted(_ALL, key=lambda each: each.name)}
)
"""The languages by name, in the order of names."""
