from node.plugins.tests import idle, rtt, latency, throughput
from node.plugins.tools import sleep, ping, iperf3

_T = {t.TEST.name: t.TEST for t in (idle, rtt, latency, throughput)}
_O = {t.TOOL.name: t.TOOL for t in (sleep, ping, iperf3)}


def tests():
    return _T


def tools():
    return _O


def tools_for(name):
    return tuple(
        sorted((t for t in _O.values() if name in t.tests), key=lambda t: (-t.preference, t.name))
    )
