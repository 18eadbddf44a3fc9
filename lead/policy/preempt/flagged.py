"""Preemptors displace preemptees, and only those of lower priority. Pure."""

from __future__ import annotations

from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule

NO_PREEMPTOR = RefusalRule(
    Axis.PREEMPT, "no preemptor", "{campaign} may not displace runs of other campaigns"
)
NO_PREEMPTEE = RefusalRule(Axis.PREEMPT, "no preemptee", "runs of {campaign} cannot be displaced")
NOT_HIGHER = RefusalRule(
    Axis.PREEMPT, "not higher", "the run there has priority {old}; {new} is not higher"
)


def find_preemption_refusal(
    new: tuple[str, int], old: tuple[str, int], *, preemptor: bool, preemptee: bool
) -> PolicyRefusal | None:
    """Return a refusal unless a new run (campaign, priority) may displace an old one."""
    if not preemptor:
        return NO_PREEMPTOR.refuse(campaign=new[0])
    if not preemptee:
        return NO_PREEMPTEE.refuse(campaign=old[0])
    if new[1] <= old[1]:
        return NOT_HIGHER.refuse(new=new[1], old=old[1])
    return None
