"""The parts of a release agree: version, changelog, package, workflow, and older databases."""

from __future__ import annotations

import re
import tomllib

from packaging.version import Version

from node.runtime.settings import Settings
from node.store import schema
from tests.architecture.sources import REPOSITORY
from tests.support.releases import RELEASES

WORKFLOW = REPOSITORY / ".github/workflows/release.yml"
PACKAGING = REPOSITORY / "deploy/debian"
CONTAINER = REPOSITORY / "deploy/container"
ROLE = REPOSITORY / "deploy/ansible/roles/parley"
LINE_MAX = 160
"""Characters of a change in the changelog."""


def test_the_changelog_has_the_version() -> None:
    """The program has the version of the changelog's first section, or is what comes after it."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    changelog = (REPOSITORY / "CHANGELOG.md").read_text()
    released = re.findall(r"^## \[([\d.]+)\] - \d{4}-", changelog, re.MULTILINE)
    coming = "\n## [Unreleased]\n" in changelog
    assert (Version(project["version"]) > Version(released[0])) == coming
    assert coming or project["version"] == released[0]


def test_the_changelog_has_a_line_for_each_change() -> None:
    """A change is one short line, told once; what it means in detail is in the documentation."""
    lines = (REPOSITORY / "CHANGELOG.md").read_text().splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("## "))
    changes = [line for line in lines[first:] if line and not line.startswith("#")]
    wrong = [line for line in changes if not line.startswith("- ") or len(line) > LINE_MAX]
    assert wrong == [], "after a merge by union: keep your own line, and none of the old ones"
    assert sorted(set(changes)) == sorted(changes)


def test_the_latest_schema_of_a_release_is_kept() -> None:
    """The dump of the released schema is among those that tests migrate; one under way has none."""
    changelog = (REPOSITORY / "CHANGELOG.md").read_text()
    kept = {it.name for it in RELEASES}
    own = schema.schema_version()
    under_way = f"schema version {own} " in changelog.partition("\n## [Unreleased]\n")[2][:2000]
    assert f"schema_{own - 1 if under_way else own}.sql.gz" in kept
    assert not under_way or f"schema_{own}.sql.gz" not in kept, "a release writes it"


def test_the_workflow_calls_targets_that_exist() -> None:
    """Each target of make that the release workflow calls is in the Makefile."""
    called = set(re.findall(r"run: (?:sudo )?make (\w+)", WORKFLOW.read_text()))
    makefile = (REPOSITORY / "Makefile").read_text()
    assert called >= {"lint", "test", "audit", "sbom", "package", "booted", "contained", "playbook"}
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


def test_the_images_have_what_they_copy_and_compose_starts() -> None:
    """Files that the images copy exist, and the images have what compose builds and starts."""
    recipe = (CONTAINER / "Containerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(?:--\S+ )?(.+) \S+$", recipe, re.MULTILINE)
    assert copied
    for name in " ".join(copied).split():
        assert (REPOSITORY / name).exists(), name
    compose = (CONTAINER / "compose.yml").read_text()
    targets = set(re.findall(r"target: (\w+)", compose))
    assert targets == {"node", "database"}
    assert targets <= set(re.findall(r"^FROM .* AS (\w+)$", recipe, re.MULTILINE))
    for program in ("parley-net-raw", "parley-tools-listening"):
        assert program in compose
        assert f"/usr/local/bin/{program}" in recipe


def test_images_and_role_use_settings_that_exist() -> None:
    """Each setting that the images, their example and the role set is one of the program's."""
    files = (
        CONTAINER / "Containerfile",
        CONTAINER / "parley.env",
        ROLE / "templates/parley.env.j2",
    )
    for file in files:
        names = re.findall(r"^ *(?:ENV )?PARLEY_(\w+)=", file.read_text(), re.MULTILINE)
        assert names, file
        assert {it.lower() for it in names} <= set(Settings.model_fields), file
