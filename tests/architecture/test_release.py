"""The parts of a release agree: version, changelog, package, workflow, and older databases."""

from __future__ import annotations

import re
import tomllib

from node.settings import Settings
from node.store import schema
from tests.architecture.sources import REPOSITORY
from tests.support.releases import RELEASES

WORKFLOW = REPOSITORY / ".github/workflows/release.yml"
PACKAGING = REPOSITORY / "deploy/debian"


def test_the_changelog_has_the_version() -> None:
    """The version of the program has a section of its own in the changelog."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    changelog = (REPOSITORY / "CHANGELOG.md").read_text()
    assert re.search(
        rf"^## \[{re.escape(project['version'])}\] - \d{{4}}-", changelog, re.MULTILINE
    )


def test_the_latest_schema_of_a_release_is_kept() -> None:
    """The dump of the released schema is among those that tests migrate."""
    assert f"schema_{schema.schema_version()}.sql.gz" in {it.name for it in RELEASES}


def test_the_workflow_calls_targets_that_exist() -> None:
    """Each target of make that the release workflow calls is in the Makefile."""
    called = set(re.findall(r"run: make (\w+)", WORKFLOW.read_text()))
    makefile = (REPOSITORY / "Makefile").read_text()
    assert called >= {"lint", "test", "audit", "sbom", "package"}
    assert called <= set(re.findall(r"^(\w+):", makefile, re.MULTILINE))


def test_the_package_has_each_unit() -> None:
    """The package installs every unit, and its scripts change settings that the example has."""
    rules = (PACKAGING / "rules").read_text()
    for unit in (REPOSITORY / "deploy").glob("parley-*.service"):
        assert f"--name={unit.stem}" in rules
    changed = re.findall(r"s\|\^#?(PARLEY_\w+)=", (PACKAGING / "parley.postinst").read_text())
    example = (REPOSITORY / "deploy/parley.env").read_text()
    assert changed
    for setting in changed:
        assert re.search(rf"^#?{setting}=", example, re.MULTILINE), setting
        assert setting.removeprefix("PARLEY_").lower() in Settings.model_fields
