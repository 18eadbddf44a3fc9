"""Groups of a template, and the tasks that they give: who measures to whom, and who leads. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

from node.pscheduler.psconfig.addresses import Address, AddressBook, Selected
from node.pscheduler.psconfig.template import Document, pointer


@dataclass(frozen=True)
class Pairing:
    """The addresses of one task of the template.

    ``flip`` is whether another address schedules it than the template wants, because that one has
    no agent.
    """

    addresses: tuple[Address, ...]
    scheduled_by: Address
    flip: bool


def pairings(name: str, task: Document, book: AddressBook) -> Iterator[Pairing]:
    """Yield what a task of the template is for.

    One that another number of addresses should schedule is for nobody, as there.
    """
    wanted = task.get("scheduled-by", 0)
    if wanted < 0:
        book.report.add(pointer("tasks", name, "scheduled-by"), "is no index: the first counts")
        wanted = 0
    skipped = 0
    for addresses in _combinations(str(task.get("group")), name, book):
        if any(address.disabled for address in addresses):
            continue
        if wanted >= len(addresses):
            why = f"is {wanted}, and its group gives {len(addresses)} addresses, counted from 0"
            book.report.add(pointer("tasks", name, "scheduled-by"), why, tasks=1)
            continue
        first = addresses[wanted]
        able = [address for address in addresses if not address.no_agent]
        if not able:
            skipped += 1
        elif first.no_agent:
            yield Pairing(addresses, able[0], flip=True)
        else:
            yield Pairing(addresses, first, flip=False)
    if skipped:
        why = f"{skipped} combinations are of addresses without an agent: nobody schedules these"
        book.report.add(pointer("tasks", name), why)


def _combinations(group: str, task: str, book: AddressBook) -> Iterator[tuple[Address, ...]]:
    entry = book.template["groups"].get(group)
    if entry is None:
        book.report.add(
            pointer("tasks", task, "group"), f"there is no group {group}: it measures nothing"
        )
        return
    at = pointer("groups", group)
    label = entry.get("default-address-label")
    match entry.get("type"):
        case "list":
            for chosen in _selected_addresses(entry, "addresses", at, book):
                # A list has no far end: the address towards itself counts.
                if (address := book.address(chosen, label, chosen.name)) is not None:
                    yield (address,)
        case "mesh":
            each = _selected_addresses(entry, "addresses", at, book)
            yield from _pairs(entry, product(each, each), book)
        case "disjoint":
            left = _selected_addresses(entry, "a-addresses", at, book)
            right = _selected_addresses(entry, "b-addresses", at, book)
            ways = [product(left, right)]
            if entry.get("unidirectional") is not True:
                ways.append(product(right, left))
            # Members of both sides are paired once.
            yield from _pairs(entry, dict.fromkeys(chain.from_iterable(ways)), book)
        case other:
            book.report.add(f"{at}/type", f"there is no type {other!r}")


def _selected_addresses(entry: Document, member: str, at: str, book: AddressBook) -> list[Selected]:
    selectors = entry.get(member, [])
    chosen = [
        each
        for number, selector in enumerate(selectors)
        for each in book.selected_entries(selector, f"{at}/{member}/{number}")
    ]
    return list(dict.fromkeys(chosen))


def _pairs(
    entry: Document, chosen: Iterable[tuple[Selected, Selected]], book: AddressBook
) -> Iterator[tuple[Address, ...]]:
    label = entry.get("default-address-label")
    scope = entry.get("excludes-self", "host")
    excluded = set(_excluded_pairs(entry, book))
    for one, other in chosen:
        if (one, other) in excluded:
            continue
        near, far = book.address(one, label, other.name), book.address(other, label, one.name)
        if near is not None and far is not None and not _is_itself(near, far, scope):
            yield near, far


def _is_itself(near: Address, far: Address, scope: Any) -> bool:
    same_host = near.host is not None and near.host.lower() == (far.host or "").lower()
    same_address = near.parent.lower() == far.parent.lower()
    return {"host": same_host or same_address, "disabled": False}.get(scope, same_address)


def _excluded_pairs(entry: Document, book: AddressBook) -> Iterator[tuple[Selected, Selected]]:
    for pair in entry.get("excludes", ()):
        targets = pair.get("target-addresses")
        targets = targets if isinstance(targets, list) else []
        for one in book.selected_entries(pair.get("local-address"), ""):
            for selector in targets:
                for other in book.selected_entries(selector, ""):
                    yield one, other
