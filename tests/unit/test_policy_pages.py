"""The pages of the policy sets, with their pictures, are what is made from the code."""

from __future__ import annotations

import pytest

from docs.generator.policy_pages import BESIDE, WORDS, pages
from lead.simulation.pool_file import PoolFile
from lead.simulation.scenario import POOL, read, validated
from node.model.errors import InvalidDocument
from node.model.policysets import SETS

pytestmark = pytest.mark.timeout(60)


@pytest.mark.nightly
def test_the_pages_are_up_to_date() -> None:
    """Playing the pool again gives the pages and pictures that are there."""
    assert list(WORDS) == list(BESIDE) == list(SETS)
    old = [path.name for path, text in pages() if path.read_text("utf-8") != text]
    assert old == [], "make them anew: python -m docs.generator.policy_pages"


def test_a_file_of_a_pool_is_checked() -> None:
    """A want of an unknown campaign, or of more nodes than there are, is refused."""
    document = read(POOL)
    want = document["wants"][0]
    for wrong in ({**want, "campaign": "nobody"}, {**want, "nodes": 5}):
        with pytest.raises(InvalidDocument):
            validated(PoolFile, {**document, "wants": [wrong]})
