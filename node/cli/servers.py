"""Check that the server of a command is the node that it was before, as ssh does with hosts.

The key of a server is what ``--server-identity`` or PARLEY_IDENTITY says, or what a person has
confirmed when the server was used for the first time. Both are kept in ``servers.json`` of the
user's configuration, so that later commands ask nothing.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from node.cli.failures import print_error_lines
from node.cli.output import printable_text
from node.cli.profiles import config_path, write_config
from node.model.errors import HostError, NotAllowed
from node.model.loopback import is_exposed

if TYPE_CHECKING:
    from node.cli.invocation import Invocation
    from node.client.first_contact import Contact
    from node.trust.tls import TlsOptions

_FILE = "servers.json"


def is_checked(invocation: Invocation, server: str) -> bool:
    """Return whether a server has to show its key or its certificate."""
    strays = invocation.is_token_borrowed and invocation.allows_plain_http and is_exposed(server)
    return invocation.expected_identity is not None or server.startswith("https:") or strays


def known_tls(invocation: Invocation, server: str) -> TlsOptions | None:
    """Return how to check the certificate of a server that was used before, without asking it.

    Return None if more has to be checked, by :func:`tls_of`.
    """
    if invocation.is_token_borrowed:
        return None
    if not is_checked(invocation, server):
        return {}
    identity, given = pinned_identity(server), invocation.expected_identity
    if identity is None or given not in {None, identity} or not server.startswith("https:"):
        return None
    from node.trust import tls  # loads cryptography

    return tls.pinned_options(identity)


def tls_of(invocation: Invocation, server: str) -> TlsOptions:
    """Return how to check the certificate of a server, once it has shown to be the right one.

    A server on this host, or over http, is checked only if a key was given, or if a token would go
    to another host that was meant for another server. Otherwise one whose name public authorities
    certify is asked for no key.

    :raises click.UsageError: the key is not known, and nobody can be asked.
    :raises NotAllowed: a person does not confirm the key.
    :raises PeerError: the server is not the node with this key, or does not answer.
    """
    if not is_checked(invocation, server):
        return {}
    given, secured = invocation.expected_identity, server.startswith("https:")
    from node.client.first_contact import find, verify  # loads http, which --help does not need

    _require_identity(given)
    if (identity := given or pinned_identity(server)) is not None:
        contact = verify(server, identity)
        if given is not None and secured:
            pin(server, given)
        return contact.tls
    contact = find(server)
    if not contact.certified or invocation.is_token_borrowed:
        confirm(contact, server, f"--server {server} --server-identity ed25519:KEY")
        pin(server, contact.identity)
    return contact.tls


def confirm(contact: Contact, url: str, hint: str) -> None:
    """Show the key of a node to a person, and return if they confirm it.

    :raises click.UsageError: nobody can be asked; ``hint`` says what to give.
    :raises NotAllowed: the person does not confirm it.
    """
    require_terminal(url, hint)
    print_error_lines(
        f"The node at {url} calls itself {printable_text(contact.name)} and has the key\n"
        f"  {contact.identity}\n"
        "Its owner sees its key with 'parley node show'; compare all of it."
    )
    if not click.confirm("Is it the same?", err=True):
        raise NotAllowed(f"the node at {url} is not trusted: its key was not confirmed")


def require_terminal(url: str, hint: str) -> None:
    """Check that a person can be asked about the key of the node at a URL.

    :raises click.UsageError: nobody can; ``hint`` says what to give.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(
            f"the key of the node at {url} cannot be trusted without a look, and nobody can be "
            "asked here. Get its identity from its owner ('parley node show' there) and give it: "
            f"{hint}"
        )


def pinned_identity(server: str) -> str | None:
    """Return the key under which this user has confirmed a server; None if never."""
    return _pinned_identities().get(server)


def pin(server: str, identity: str) -> None:
    """Keep the key of a server for later commands of this user.

    :raises HostError: it cannot be written.
    """
    known = _pinned_identities()
    if known.get(server) != identity:
        content = json.dumps({**known, server: identity}, indent=2) + "\n"
        write_config(config_path(_FILE), content.encode())


def _require_identity(given: str | None) -> None:
    from node.trust.identities import public_of

    if given is None:
        return
    try:
        public_of(given)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--server-identity") from None


def _pinned_identities() -> dict[str, str]:
    path = config_path(_FILE)
    try:
        known = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be read: {error}; repair it, or remove it and confirm the keys again"
        raise HostError(msg) from error
    return {str(server): str(identity) for server, identity in known.items()}
