"""Webhooks: what has begun or is over since they were told last, and their signatures. Pure."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

PREFIX = "whsec_"
"""The beginning of a secret, by the convention of Standard Webhooks."""
_KEY_MIN = 24


class WebhookEvent(StrEnum):
    """A kind of trouble: a webhook is told when it begins, and when it is over."""

    NODE_AWAY = "node-away"
    TASK_FAILING = "task-failing"
    MESH_BELOW = "mesh-below"
    ALERT = "alert"


class Condition(NamedTuple):
    """An event, and the node, task or mesh that it is about."""

    event: WebhookEvent
    subject: str


@dataclass(frozen=True)
class Changes:
    """The conditions that have begun, and those that are over."""

    begun: tuple[Condition, ...]
    over: tuple[Condition, ...]


def changes(now: Collection[Condition], told: Collection[Condition]) -> Changes:
    """Return what a webhook is to be told that was told of other conditions before."""
    begun = tuple(sorted(set(now) - set(told)))
    return Changes(begun, tuple(sorted(set(told) - set(now))))


def key_of(secret: str) -> bytes:
    """Return the key in a secret.

    :raises ValueError: it is none.
    """
    msg = f"write {PREFIX} and at least {_KEY_MIN} bytes in base64"
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(msg) from None
    if not secret.startswith(PREFIX) or len(key) < _KEY_MIN:
        raise ValueError(msg)
    return key


def secret_of(key: bytes) -> str:
    """Return a key as a secret that is shown to people."""
    return PREFIX + base64.b64encode(key).decode()


def signature_headers(secret: str, message: str, seconds: int, body: bytes) -> Mapping[str, str]:
    """Return the headers of a delivery: id, time, and HMAC-SHA256 (standardwebhooks.com)."""
    content = f"{message}.{seconds}.".encode() + body
    digest = hmac.new(key_of(secret), content, sha256).digest()
    return {
        "Webhook-Id": message,
        "Webhook-Timestamp": str(seconds),
        "Webhook-Signature": f"v1,{base64.b64encode(digest).decode()}",
    }
