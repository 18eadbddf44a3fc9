"""The addresses of a task's participants: those on their cards, not those that a lead gives. Pure.

A node sends measurement traffic to other participants. Where it knows one of them by a pinned card,
the card says where: its address, or that of the context in which it measures. So a lead can send
no traffic to an address that it has invented in the name of a node known here.
"""

from __future__ import annotations

from node.model.contexts import offered
from node.model.naming import Described, normalised_word
from node.model.wire.tasks import Participant


def address_fault(participant: Participant, card: Described) -> str | None:
    """Return why an introduced address is not the participant's; None if its card has it."""
    contexts = offered(card.attributes).values()
    if normalised_word(participant.address) in map(normalised_word, (card.address, *contexts)):
        return None
    return (
        f"{participant.address} is not an address of {card.name}: its card here says "
        f"{', '.join(dict.fromkeys((card.address, *contexts)))}. Cards are read every 15 seconds; "
        "if its address has changed, try again then"
    )


def current_address(participant: Participant, card: Described) -> str | None:
    """Return the address that a participant has by its card as it is now.

    None if it measures in a context that its card does not offer any more.
    """
    if participant.context is None:
        return card.address
    return offered(card.attributes).get(participant.context)
