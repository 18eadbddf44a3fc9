"""The compositions of policies that the seeds have names for."""

from __future__ import annotations

from typing import Final

from lead.policy.sets import DEFAULT, PolicyComposition
from lead.policy.settings import configured_recipe
from node.model.policysets import ALIASES

COMPOSITIONS: Final[dict[str, PolicyComposition]] = {
    name: configured_recipe(name) for name in (DEFAULT, "pscheduler", *ALIASES)
}
"""By name: the nine sets without options, and the recipes of the seeds, each once."""
