"""Choose when the exclusive runs of a mesh start, so that no two of them meet on a node. Pure.

An exclusive run takes its nodes for itself. Runs of one length and one interval are placed in
*cells*: parts of the interval of that length. What is placed in a cell is a round of disjoint
pairs, so to place a mesh is to colour the edges of a graph: no node has a colour twice. By Vizing's
theorem hardly more colours are needed than the fullest node has runs.

- In a full mesh, the sum of the numbers of both nodes, modulo the number of rounds, is a colouring
  without a conflict. It depends neither on the other pairs nor on how many there are: whoever
  applies the file finds the same, and a node that is added at the end of a group moves no run.
  Several runs of one pair take neighbouring cells, and a stride near the golden ratio spreads few
  runs over the whole interval. If there are fewer rounds than the nodes need, as many rounds of all
  take place as a whole.
- A run whose cell is taken goes to the next one that is free on its nodes.
- If no cell is free on both nodes, though one is on each, the runs of these two cells change places
  along the path on which they alternate (a Kempe chain), unless it leads back.
- Runs of other lengths and intervals block the cells that they touch; the longest are placed first.
  What finds no cell beside them takes any gap.

A run that has a start keeps it, unless a chain moves it to make room. What finds no place is told:
it starts when a hash says (``spreading.py``), and waits for its turn.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product
from typing import NamedTuple

from node.model import times

_GRAIN = times.SECOND // 10
"""Cells are whole multiples of it, so that starts are instants that people can read."""
_CELLS_MAX = 1 << 16
_CHAINS_MAX = 64
"""The number of pairs of cells that are tried for a run that finds none."""
_ROUNDED = 1e-9
_GOLDEN = (math.sqrt(5) - 1) / 2


class MeshRun(NamedTuple):
    """The exclusive runs of a task: the one or two nodes they take, duration, interval (µs)."""

    key: str
    nodes: tuple[str, ...]
    duration: int
    interval: int


@dataclass(frozen=True)
class Placement:
    """The distances of starts into their intervals (µs), by the keys of the tasks.

    ``unplaced`` are the keys of those that meet others wherever they start; they have no distance.
    """

    phases: Mapping[str, int]
    unplaced: tuple[str, ...] = ()


class _Span(NamedTuple):
    """The time that the runs of a task take, once in each interval."""

    phase: int
    duration: int
    interval: int


def place(mesh: str, runs: Iterable[MeshRun], kept: Mapping[str, int]) -> Placement:
    """Return the starts of all runs of a mesh; ``kept`` are those that some have already."""
    classes: dict[tuple[int, int], list[MeshRun]] = defaultdict(list)
    for run in runs:
        classes[run.duration, run.interval].append(run)
    longest_first = {kind: classes[kind] for kind in sorted(classes, reverse=True)}
    rounds = {kind: _Rounds(*kind) for kind in longest_first}
    loose = _LooseRuns()
    for run in chain.from_iterable(longest_first.values()):
        phase = kept.get(run.key)
        if phase is not None and not rounds[run.duration, run.interval].keep(run, phase):
            loose.add(run, phase)
    homeless: list[MeshRun] = []
    for kind, members in longest_first.items():
        each, new = rounds[kind], [run for run in members if run.key not in kept]
        each.block({node for run in members for node in run.nodes}, rounds.values(), loose)
        homeless += each.place_all(new, _wishes(mesh, members, each.cells))
    # If all are in cells of one kind, those that have none have no gap either.
    if len(rounds) > 1 or loose.phases:
        homeless = loose.place_all(homeless, rounds.values())
    phases = dict(loose.phases)
    for each in rounds.values():
        phases |= each.phases()
    return Placement(phases, tuple(run.key for run in homeless))


class _LooseRuns:
    """Runs that are in no cell: their starts, and the time that they take by node."""

    def __init__(self) -> None:
        self.phases: dict[str, int] = {}
        self._spans: dict[str, list[_Span]] = defaultdict(list)

    def add(self, run: MeshRun, phase: int) -> None:
        """Add a run that starts then."""
        self.phases[run.key] = phase
        for node in run.nodes:
            self._spans[node].append(_Span(phase, run.duration, run.interval))

    def spans(self, node: str) -> Sequence[_Span]:
        """Return the time that they take of a node."""
        return self._spans.get(node, ())

    def place_all(self, runs: Sequence[MeshRun], rounds: Iterable[_Rounds]) -> list[MeshRun]:
        """Add each run at the first start where it meets nothing; return those that have none."""
        kinds: list[_LooseRuns | _Rounds] = [self, *rounds]
        used = {
            node: sum(span.duration / span.interval for each in kinds for span in each.spans(node))
            for node in {node for run in runs for node in run.nodes}
        }
        homeless = []
        for run in runs:
            share = run.duration / run.interval
            # Most that find no cell are on a full node, and to look for gaps takes long.
            has_time = all(used[node] + share < 1 + _ROUNDED for node in run.nodes)
            gap = self._gap(run, kinds) if has_time else None
            if gap is None:
                homeless.append(run)
                continue
            self.add(run, gap)
            for node in run.nodes:
                used[node] += share
        return homeless

    def _gap(self, run: MeshRun, kinds: Iterable[_LooseRuns | _Rounds]) -> int | None:
        """Return the first start at which a run meets nothing on its nodes, None without one."""
        begun = (
            (begin, begin + span.duration)
            for node in run.nodes
            for each in kinds
            for span in each.spans(node)
            if (apart := _apart(span, run.duration, run.interval))
            for begin in range(span.phase % apart - apart, run.interval, apart)
        )
        start = 0
        for begin, end in sorted(begun):
            if begin - start >= run.duration:
                break
            start = max(start, end)
        return start if start + run.duration <= run.interval else None


def _wishes(mesh: str, runs: Sequence[MeshRun], cells: int) -> dict[str, int]:
    """Return the cell that each run takes if it is free, by its key."""
    numbers: dict[str, int] = {}
    for run in runs:
        for node in run.nodes:
            numbers.setdefault(node, len(numbers))
    pairs = [frozenset(run.nodes) for run in runs]
    beside = Counter(pairs)
    # Both directions of a pair are two runs side by side; that is the rule, and others follow it.
    [(abreast, _)] = Counter(beside.values()).most_common(1)
    rounds = max(1, cells // abreast)
    partners = Counter(chain.from_iterable(beside))
    last = None
    if max(partners.values()) >= rounds < len(numbers):
        # Not all rounds of all nodes fit: some take place as a whole, and the others do not. One
        # node of an even number meets each other one where that would meet itself.
        rounds = len(numbers) - 1 + len(numbers) % 2
        last = rounds if rounds < len(numbers) else None
    stride = _stride(rounds)
    first = int.from_bytes(hashlib.sha256(mesh.encode()).digest()[:8])
    earlier: Counter[frozenset[str]] = Counter()
    wishes = {}
    for run, pair in zip(runs, pairs, strict=True):
        ends = [numbers[node] for node in run.nodes]
        total = 2 * min(ends) if last in ends else sum(ends)
        number = (first + stride * total) % rounds
        wishes[run.key] = number * abreast + earlier[pair]
        earlier[pair] += 1
    return wishes


def _stride(rounds: int) -> int:
    """Return a step that visits all rounds, and the first few far from one another."""
    stride = max(1, round(rounds * _GOLDEN))
    while math.gcd(stride, rounds) != 1:
        stride += 1
    return stride


class _Rounds:
    """The cells of all runs of one duration and interval, and what is in them, by node."""

    def __init__(self, duration: int, interval: int) -> None:
        self._interval = interval
        self._length = -(-duration // _GRAIN) * _GRAIN
        self.cells = min(interval // self._length, _CELLS_MAX)
        self._all = (1 << self.cells) - 1
        self._free: dict[str, int] = {}
        self._runs: dict[str, dict[int, MeshRun]] = defaultdict(dict)
        self._cells: dict[str, int] = {}

    def keep(self, run: MeshRun, phase: int) -> bool:
        """Put a run into the cell that begins then; return whether one does, and is free."""
        cell, rest = divmod(phase, self._length)
        is_free = all(cell not in self._runs[node] for node in run.nodes)
        if rest or cell >= self.cells or not is_free:
            return False
        self._put(run, cell)
        return True

    def block(self, nodes: Iterable[str], every: Iterable[_Rounds], loose: _LooseRuns) -> None:
        """Close the cells that others touch on these nodes."""
        others = [each for each in every if each is not self]
        for node in nodes:
            spans = chain(loose.spans(node), *(other.spans(node) for other in others))
            taken = 0
            for cell in self._runs[node]:
                taken |= 1 << cell
            for first, last in chain.from_iterable(map(self._touched, spans)):
                taken |= ((2 << (last - first)) - 1) << first
            self._free[node] = self._all & ~taken

    def _touched(self, span: _Span) -> Iterator[tuple[int, int]]:
        """Yield the first and the last cell that each run of a span touches."""
        apart = _apart(span, self._length, self._interval)
        end = self.cells * self._length
        for start in range(span.phase % apart - apart, end, apart) if apart else ():
            first, last = start // self._length, (start + span.duration - 1) // self._length
            if last >= 0:
                yield max(0, first), min(self.cells - 1, last)

    def spans(self, node: str) -> Iterator[_Span]:
        """Yield the time that its runs take of a node."""
        for cell in self._runs.get(node, ()):
            yield _Span(cell * self._length, self._length, self._interval)

    def phases(self) -> dict[str, int]:
        """Return the starts of what has a cell."""
        return {key: cell * self._length for key, cell in self._cells.items()}

    def place_all(self, runs: Sequence[MeshRun], wishes: Mapping[str, int]) -> list[MeshRun]:
        """Put each run into its cell or another one; return those that find none."""
        if not self.cells:
            return list(runs)
        waiting = [run for run in runs if not self._place_at(run, wishes[run.key])]
        waiting = [run for run in waiting if not self._place_from(run, wishes[run.key])]
        return [run for run in waiting if not self._place_by_chain(run)]

    def _place_at(self, run: MeshRun, cell: int) -> bool:
        if not self._common(run) >> cell & 1:  # taken, or beyond the last one
            return False
        self._put(run, cell)
        return True

    def _place_from(self, run: MeshRun, wish: int) -> bool:
        """Put a run into the first free cell from its wish on, or else before it."""
        free = self._common(run)
        if not free:
            return False
        later = free >> wish % self.cells
        self._put(run, wish % self.cells + _lowest(later) if later else _lowest(free))
        return True

    def _place_by_chain(self, run: MeshRun) -> bool:
        if len(run.nodes) == 1:
            return False
        here, there = run.nodes
        pairs = product(_bits(self._free[here]), _bits(self._free[there]))
        for cell, other in islice(pairs, _CHAINS_MAX):
            path = self._path(there, cell, other, here)
            if path is not None:
                self._exchange(path, cell, other)
                self._put(run, cell)
                return True
        return False

    def _path(self, node: str, cell: int, other: int, end: str) -> list[MeshRun] | None:
        """Return the runs in two cells by turns, from a node on; None if they cannot change places.

        They cannot if they lead to the node ``end``, or to a run of another kind.
        """
        path: list[MeshRun] = []
        while not self._free[node] >> cell & 1:
            run = self._runs[node].get(cell)
            if run is None:
                return None
            path.append(run)
            if len(run.nodes) == 1:
                break
            node = run.nodes[1] if run.nodes[0] == node else run.nodes[0]
            if node == end:
                return None
            cell, other = other, cell
        return path

    def _exchange(self, path: Sequence[MeshRun], cell: int, other: int) -> None:
        for number, run in enumerate(path):
            self._remove(run, (cell, other)[number % 2])
        for number, run in enumerate(path):
            self._put(run, (other, cell)[number % 2])

    def _common(self, run: MeshRun) -> int:
        """Return the cells that are free on all nodes of a run, as bits."""
        free = self._free[run.nodes[0]]
        return free & self._free[run.nodes[1]] if len(run.nodes) > 1 else free

    def _put(self, run: MeshRun, cell: int) -> None:
        self._cells[run.key] = cell
        for node in run.nodes:
            self._runs[node][cell] = run
            self._free[node] = self._free.get(node, self._all) & ~(1 << cell)

    def _remove(self, run: MeshRun, cell: int) -> None:
        for node in run.nodes:
            del self._runs[node][cell]
            self._free[node] |= 1 << cell


def _apart(span: _Span, duration: int, interval: int) -> int:
    """Return how far apart the places of a span in another interval are, 0 if it counts for none.

    Runs of two intervals of which neither is a multiple of the other one meet now and then if they
    are longer than what both have in common, wherever they start.
    """
    apart = math.gcd(interval, span.interval)
    is_nested = apart == min(interval, span.interval)
    return apart if is_nested or span.duration + duration <= apart else 0


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _bits(bits: int) -> Iterator[int]:
    while bits:
        yield _lowest(bits)
        bits &= bits - 1
