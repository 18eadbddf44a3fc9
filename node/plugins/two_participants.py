"""The common parts of tests with two participants, ``source`` and ``dest``. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from node.model.wire.fields import Document
from node.plugins.participation import fill


class BetweenTwo(Protocol):
    """A spec with two participants."""

    @property
    def source(self) -> str | None:
        """The participant that begins; None is the lead itself."""
        ...

    @property
    def dest(self) -> str | None:
        """The other participant; None until the task's participants are filled in."""
        ...


Spec = TypeVar("Spec", bound=Document)


class PairTest:
    """The half of a :class:`~node.plugins.contracts.Test` that concerns the participants.

    Its spec has ``source`` and ``dest``; without a source, the lead is the source.
    """

    name: str

    def participants(self, spec: BetweenTwo) -> tuple[str | None, ...]:
        """Return source and dest."""
        return (spec.source, spec.dest)

    def with_participants(self, spec: Spec, names: Sequence[str]) -> Spec:
        """Return the spec with source and dest filled in.

        :raises ValueError: not two names, a conflict with the spec, or no dest in either.
        """
        filled = fill(spec, self.name, ("source", "dest"), names)
        if getattr(filled, "dest", None) is None:
            raise ValueError(
                f"{self.name} needs dest, in the spec or as the second of participants"
            )
        return filled

    def hosts(self, spec: BetweenTwo) -> tuple[str, ...]:
        """Return source and dest, without those that are None."""
        return tuple(host for host in (spec.source, spec.dest) if host is not None)


def check_two(spec: BetweenTwo) -> None:
    """Refuse a spec in which both participants are the same host.

    :raises ValueError: they are the same.
    """
    if spec.source is not None and spec.source == spec.dest:
        raise ValueError(f"source and dest are the same host, {spec.source}")
