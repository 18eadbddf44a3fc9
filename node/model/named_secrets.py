"""Rules of a secret of this host's owner: its users, and where it may be sent. Pure.

Tasks of users with the role ``operate`` use each of them. Anybody else uses those that name them,
and those are bound to hosts: whoever chose the target would otherwise have the secret sent to
themselves. A task is checked when it is admitted for whose it is, and each time before a tool
is told the secret for whose it still is, and for where it goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from node.model.wire.secrets import SecretTerms


@dataclass(frozen=True)
class KeptSecret:
    """A secret of the owner as it is stored; ``leads`` of its terms are identities."""

    terms: SecretTerms
    sealed: str
    created_at: int
    changed_at: int


@dataclass(frozen=True)
class SecretUse:
    """A use of secrets by a run.

    ``lead`` is the identity of the node that leads it, None for this one. ``user`` is the bound
    user whose task it is (role ``run``, or ``parley-follow``), None for anybody else's. ``targets``
    are the hosts that its spec names beside its participants, each with the address that is
    measured; ``port`` is theirs.
    """

    lead: str | None
    targets: Sequence[tuple[str, str]]
    port: int | None
    user: str | None = None


def purpose_of(name: str) -> str:
    """Return the purpose for which the value of a secret is sealed."""
    return f"secret/{name}"


def user_refusal(name: str, secret: KeptSecret | None, user: str) -> str | None:
    """Return why a bound user must not use a secret; None if they may.

    A secret that they may not use is for them as if there were none.
    """
    if secret is not None and user in secret.terms.users:
        return None
    return (
        f"there is no secret {name} that {user} may use; its owner lets them: "
        f"parley secret add {name} --replace --user {user} --host HOST"
    )


def use_refusal(name: str, secret: KeptSecret | None, use: SecretUse) -> str | None:
    """Return why this host does not send a secret for a run; None if it does."""
    if use.lead is not None and (secret is None or use.lead not in secret.terms.leads):
        return (
            f"the owner of this host has no secret {name} for tasks of the node that leads this one"
            f"; they add it: parley secret add {name} --lead NODE --host HOST"
        )
    if use.user is not None and (refusal := user_refusal(name, secret, use.user)) is not None:
        return refusal
    if secret is None:
        return f"there is no secret {name} on this host; add it: parley secret add {name}"
    for host, address in use.targets:
        if not _is_allowed(secret.terms.hosts, host, use.port):
            allowed = ", ".join(secret.terms.hosts)
            return f"the secret {name} may not be sent to {host}, only to: {allowed}"
        if use.lead is not None and address != host:
            return f"the secret {name} is not sent to {address} in place of {host}"
    return None


def _is_allowed(hosts: Sequence[str], host: str, port: int | None) -> bool:
    named = f"[{host}]" if ":" in host else host
    return not hosts or host.lower() in hosts or f"{named}:{port}".lower() in hosts
