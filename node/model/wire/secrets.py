"""Secrets of the owner that specs of tests name, and whose values nobody is told."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from node.model.wire.fields import Document, Instant, Name

_ENTRIES_MAX = 100


def _lower_case(value: str) -> str:
    return value.lower()


_Target = Annotated[
    str,
    StringConstraints(pattern=r"^(\[[0-9A-Fa-f:.]{2,45}\]:[0-9]{1,5}|[0-9A-Za-z:_.-]{1,259})$"),
    AfterValidator(_lower_case),
]
_Word = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,100}$")]


class SecretTerms(Document):
    """The name of a secret, who may use it, and where it may be sent."""

    name: Name
    hosts: tuple[_Target, ...] = Field(
        (),
        max_length=_ENTRIES_MAX,
        description="The hosts that it may be sent to, each as a spec writes it, or HOST:PORT. By "
        "default any, but then only tasks of users with the role operate use it.",
    )
    users: tuple[_Word, ...] = Field(
        (),
        max_length=_ENTRIES_MAX,
        description="Labels of tokens with the role run whose tasks may use it.",
    )
    leads: tuple[_Word, ...] = Field(
        (),
        max_length=_ENTRIES_MAX,
        description="Other nodes whose tasks may use it when this host's tool measures.",
    )

    @model_validator(mode="after")
    def _check_bound(self) -> SecretTerms:
        if (self.users or self.leads) and not self.hosts:
            msg = (
                "without hosts, those users and nodes could have it sent to themselves; name the "
                "hosts that it may be sent to"
            )
            raise ValueError(msg)
        return self


class SecretDocument(SecretTerms):
    """A secret as posted."""

    value: Annotated[str, StringConstraints(min_length=1, max_length=4000)] = Field(
        description="The value; no answer ever has it.",
        json_schema_extra={"secret": True, "writeOnly": True},
    )
    replace: bool = Field(
        default=False, strict=True, description="Whether to replace one of the same name."
    )


class Secret(SecretTerms):
    """A secret as the API shows it: without its value."""

    created_at: Instant
    changed_at: Instant
