"""Addresses of a template: labels, remote addresses, and classes. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from node.pscheduler.psconfig.template import Document, Report, pointer
from node.pscheduler.psconfig.variables import JqProgram, VariableError

_DEPTH_MAX = 20


@dataclass(frozen=True)
class Address:
    """An address as a task uses it.

    ``name`` is that of its entry in the template, ``parent`` the entry's own address: the two
    differ for labels and remote addresses. ``facts`` are what programs of jq see.
    """

    name: str
    address: str
    parent: str
    host: str | None = None
    pscheduler: str | None = None
    lead_bind: str | None = None
    contexts: tuple[str, ...] = ()
    disabled: bool = False
    no_agent: bool = False
    facts: Document = field(default_factory=dict, compare=False)

    @property
    def pointer(self) -> str:
        """Return the place of its entry in the template."""
        return pointer("addresses", self.name)


@dataclass(frozen=True)
class Selected:
    """An address entry that a group names, perhaps by a label."""

    name: str
    label: str | None


@dataclass
class AddressBook:
    """The addresses, hosts and classes of a template.

    ``own`` are the addresses of the node that asks, for classes of requesting agents; ``known_ips``
    are addresses of names, as far as they are known.
    """

    template: Document
    report: Report
    jq: JqProgram
    own: Sequence[str] | None = None
    known_ips: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def selected_entries(self, selector: Any, place: str) -> list[Selected]:
        """Return the address entries that a selector of a group means: one, or those of a class."""
        if not isinstance(selector, dict) or selector.get("disabled") is True:
            return []
        if (wanted := selector.get("class")) is not None:
            return [Selected(name, None) for name in self.class_members(str(wanted), place)]
        name = str(selector.get("name"))
        if name not in self.template["addresses"]:
            self.report.add(place, f"there is no address {name}")
            return []
        label = selector.get("label")
        return [Selected(name, None if label is None else str(label))]

    def address(self, chosen: Selected, default_label: str | None, remote: str) -> Address | None:
        """Return the address of an entry towards another one; None if it has none for it."""
        entry = self.template["addresses"].get(chosen.name)
        if entry is None:  # of a requesting agent
            return Address(chosen.name, chosen.name, chosen.name)
        label = chosen.label or default_label
        own = _labelled_entry(entry, label)
        towards = entry.get("remote-addresses", {}).get(remote)
        if isinstance(towards, dict):
            special = _labelled_entry(towards, label)
            if special is not None and special.get("address"):
                return self._address(chosen.name, entry, special, towards)
            if label and not towards.get("address"):
                return None
        return None if own is None else self._address(chosen.name, entry, own)

    def _address(self, name: str, entry: Document, *others: Document) -> Address:
        [special, *_] = others
        host = entry.get("host")
        every = [entry, *others, self.host(host)]
        return Address(
            name,
            str(special.get("address")),
            str(entry.get("address")),
            host if isinstance(host, str) else None,
            special.get("pscheduler-address"),
            special.get("lead-bind-address"),
            tuple(special.get("contexts", ())),
            any(each.get("disabled") is True for each in every),
            any(each.get("no-agent") is True for each in every),
            special,
        )

    def host(self, name: Any) -> Document:
        """Return the entry of a host; empty if there is none."""
        return self.template["hosts"].get(name, {}) if isinstance(name, str) else {}

    # Classes

    def class_members(self, name: str, place: str) -> list[str]:
        """Return the names of the addresses in a class."""
        entry = self.template["address-classes"].get(name)
        if entry is None:
            self.report.add(place, f"there is no address class {name}")
            return []
        return list(self._members(name, entry, _DEPTH_MAX))

    def _members(self, name: str, entry: Document, depth: int) -> Iterator[str]:
        at = pointer("address-classes", name)
        for candidate, address in self._class_source(entry, at).items():
            wanted, unwanted = entry.get("match-filter"), entry.get("exclude-filter")
            if wanted is not None and not self._is_wanted(
                wanted, candidate, address, f"{at}/match-filter", depth
            ):
                continue
            if unwanted is None or not self._is_wanted(
                unwanted, candidate, address, f"{at}/exclude-filter", depth
            ):
                yield candidate

    def _class_source(self, entry: Document, at: str) -> Mapping[str, Document]:
        source = entry.get("data-source", {})
        match source.get("type") if isinstance(source, dict) else None:
            case "current-config":
                addresses: Document = self.template["addresses"]
                return addresses
            case "requesting-agent" if self.own is not None:
                return {address: {"address": address} for address in self.own}
            case "requesting-agent":
                why = (
                    "its addresses are those of whoever asks, and a mesh file is for all nodes; "
                    "let each node follow the template: parley mesh follow URL"
                )
                self.report.add(f"{at}/data-source", why)
            case other:
                self.report.add(f"{at}/data-source", f"there is no source {other!r}")
        return {}

    def _is_wanted(self, wanted: Any, name: str, address: Document, at: str, depth: int) -> bool:
        if depth <= 0 or not isinstance(wanted, dict):
            self.report.add(at, "is no filter, or refers to itself")
            return False
        inner = [] if not isinstance(wanted.get("filters"), list) else wanted["filters"]
        answers = (
            self._is_wanted(each, name, address, f"{at}/filters/{number}", depth - 1)
            for number, each in enumerate(inner)
        )
        match wanted.get("type"):
            case "and":
                return all(answers)
            case "or":
                return any(answers)
            case "not":
                rest = wanted.get("filter")
                return not self._is_wanted(rest, name, address, f"{at}/filter", depth - 1)
            case "address-class":
                return self._is_in_class(str(wanted.get("class")), name, at, depth)
            case _:
                return self._is_wanted_itself(wanted, address, at)

    def _is_in_class(self, wanted: str, name: str, at: str, depth: int) -> bool:
        entry = self.template["address-classes"].get(wanted)
        if entry is None:
            self.report.add(at, f"there is no address class {wanted}")
            return False
        return name in set(self._members(wanted, entry, depth - 1))

    def _is_wanted_itself(self, wanted: Document, address: Document, at: str) -> bool:
        """Return whether an address fits a filter that has no other filters in it."""
        host = self.host(address.get("host"))
        match wanted.get("type"):
            case "tag":
                return wanted.get("tag") in address.get("tags", ())
            case "host":
                return self._is_host_wanted(wanted, host, at)
            case "ip-version":
                version = wanted.get("ip-version")
                return any(ip.version == version for ip in self._ips(address, at))
            case "netmask":
                return self._is_in_network(wanted, address, at)
            case "jq":
                return self._is_accepted_by_jq(wanted.get("jq"), address, f"{at}/jq")
            case other:
                self.report.add(at, f"there is no filter {other!r}: nothing fits it")
                return False

    def _is_host_wanted(self, wanted: Document, host: Document, at: str) -> bool:
        if "tag" in wanted and wanted["tag"] not in host.get("tags", ()):
            return False
        if "no-agent" in wanted and wanted["no-agent"] is not bool(host.get("no-agent", False)):
            return False
        return "jq" not in wanted or self._is_accepted_by_jq(wanted["jq"], host, f"{at}/jq")

    def _is_accepted_by_jq(self, transform: Any, document: Document, at: str) -> bool:
        script = transform.get("script") if isinstance(transform, dict) else transform
        program = "\n".join(script) if isinstance(script, list) else str(script)
        try:
            answer = self.jq(program, document)
        except VariableError as error:
            self.report.add(at, str(error))
            return False
        # Zero is not false in jq, and so it fits.
        return answer is not None and answer is not False and answer not in ("", [], {})

    def _is_in_network(self, wanted: Document, address: Document, at: str) -> bool:
        try:
            network = ipaddress.ip_network(str(wanted.get("netmask")), strict=False)
        except ValueError:
            self.report.add(f"{at}/netmask", "is no network such as 192.0.2.0/24")
            return False
        return any(ip.version == network.version and ip in network for ip in self._ips(address, at))

    def _ips(
        self, address: Document, at: str
    ) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
        host = str(address.get("address"))
        texts = self.known_ips.get(host.lower(), (host,))
        ips = []
        for text in texts:
            try:
                ips.append(ipaddress.ip_address(text.strip("[]")))
            except ValueError:
                self.report.add(at, f"the address of {host} is not known, so it does not fit")
        return ips


def _labelled_entry(entry: Document, label: str | None) -> Document | None:
    """Return the entry, or its label of this name; None if it has no such label."""
    if not label:
        return entry
    chosen = entry.get("labels", {}).get(label)
    return chosen if isinstance(chosen, dict) else None
