"""Two hundred ways to write an address that a foreign task must not reach."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

OWN = "10.0.0.1"
FORBIDDEN = (
    *("127.0.0.1", "127.1.2.3", "0.0.0.0", "169.254.169.254", "100.100.100.200"),
    *("169.254.7.7", "224.0.0.251", "255.255.255.255", "250.1.2.3", OWN),
    *("10.7.0.9", "172.16.3.4", "192.168.1.1", "100.64.0.1"),
)
NAMES = ("localhost", "LOCALHOST", "localhost.", "anything.localhost", "a.b.LocalHost.")
IN_URLS = (
    *(
        "\uff11\uff12\uff17.0.0.1",
        "127\u30020\u30020\u30021",
        "127\uff0e0\uff0e0\uff0e1",
        "127\uff610\uff610\uff611",
    ),
    *("\u2460\u2461\u2466.0.0.1", "\u0661\u0662\u0667.0.0.1"),
    *("%31%32%37.0.0.1", "127.0.0.1%00", "127.0.0.1%2e", "127.0.0.1%09", "0x7f\u30021"),
    *("user@127.0.0.1", "user:pw@127.1", "8.8.8.8@127.0.0.1", "127.0.0.1#@8.8.8.8"),
    *("8.8.8.8\\@127.0.0.1", "127.0.0.1\\@8.8.8.8", "127.0.0.1?@8.8.8.8", "1.1.1.1 &@127.0.0.1"),
    *(
        " 127.0.0.1",
        "127.0.0.1 ",
        "127.0.0.1\t",
        "127.0.0.1\n",
        "127.0.0.1\u200b",
        "127.0.0.1\u00ad",
    ),
    *(
        "\u24dbocalhost",
        "loc\U0001d4b6lhost",
        "localhost\u3002",
        "127.0.0.1:80:80",
        "[::1].",
        "[::1%25lo]",
    ),
    *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:0:127.0.0.1]", "[64:ff9b::7f00:1]"),
    *("[2002:7f00:1::]", "[fe80::1%25eth0]", "[fd00:ec2::254]", "0", "00", "0x0", "2130706433"),
    *("127.1", "017700000001", "0xA9FEA9FE", "169.254.43518", "127.0.0.1.", "127.0.0.1.."),
)
"""Hosts as they may stand in a URL: other digits and dots, user information, escapes, zones."""
IPV6 = ("::1", "0:0::0:1", "::", "fe80::1", "fe80::1%eth0", "ff02::1", "fd00:ec2::254")


def as_ipv4(address: str) -> Iterator[str]:
    """Yield the forms of an IPv4 address that libraries read as such."""
    number, parts = int(ipaddress.ip_address(address)), [int(it) for it in address.split(".")]
    first, second = parts[:2]
    yield address
    yield f"{address}."
    yield str(number)
    yield f"0x{number:x}"
    yield f"0X{number:08X}"
    yield f"0{number:o}"
    yield ".".join(f"0x{part:x}" for part in parts)
    yield ".".join(f"0{part:o}" for part in parts)
    yield ".".join(f"0000{part:o}" for part in parts)
    yield f"{first}.{number & 0xFFFFFF}"
    yield f"{first}.{second}.{number & 0xFFFF}"
    yield f"0x{first:x}.0{second:o}.{number & 0xFFFF}"


def inside_ipv6(address: str) -> Iterator[str]:
    """Yield the IPv6 addresses that lead to an IPv4 address."""
    number = int(ipaddress.ip_address(address))
    high, low = number >> 16, number & 0xFFFF
    yield f"::ffff:{address}"
    yield f"::FFFF:{high:X}:{low:X}"
    yield f"0000:0000:0000:0000:0000:ffff:{high:04x}:{low:04x}"
    yield f"::{address}"
    yield f"64:ff9b::{address}"
    yield f"64:ff9b::{high:x}:{low:x}"
    yield f"2002:{high:x}:{low:x}::"
    yield f"2002:{high:x}:{low:x}:1::7"
    yield f"2001:0:c633:6407:0:0:{high ^ 0xFFFF:x}:{low ^ 0xFFFF:x}"
    yield f"::ffff:{address}%eth0"
    yield f"::ffff:0:{address}"
    yield f"2a00:1450::5efe:{address}"
    yield f"2a00:1450::200:5efe:{high:x}:{low:x}"


def spellings() -> list[str]:
    """Return all forms of the forbidden addresses, and the names of this host."""
    written = [*NAMES, *IPV6]
    for address in FORBIDDEN:
        written += [*as_ipv4(address), *inside_ipv6(address)]
    return written
