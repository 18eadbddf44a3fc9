"""The parts of a release agree: version, changelog, package, workflow, and older databases."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise

import pytest
import yaml
from packaging.version import Version

from deploy import release
from node.runtime.settings import Settings
from node.store import schema
from tests.architecture.sources import REPOSITORY
from tests.support.releases import RELEASES

WORKFLOW = REPOSITORY / ".github/workflows/release.yml"
WORKFLOWS = sorted(WORKFLOW.parent.glob("*.yml"))
MINUTES_MAX = 360
"""The longest that a job may take where the workflows run."""
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


def test_workflows_use_what_nobody_can_replace() -> None:
    """Actions are named by commit with their version beside, images by digest."""
    for path in WORKFLOWS:
        text = path.read_text()
        actions = re.findall(r"uses: (.+)", text)
        assert actions
        for action in actions:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), (path, action)
        for image in re.findall(r"(?:container|image): (?!\$)(\S+/\S+)", text):
            assert re.fullmatch(r"[\w./-]+:[\w.]+@sha256:[0-9a-f]{64}", image), (path, image)
    [base] = re.findall(r"^ARG BASE=(.+)$", (CONTAINER / "Containerfile").read_text(), re.MULTILINE)
    assert re.fullmatch(r"[\w./-]+:[\w.]+@sha256:[0-9a-f]{64}", base)


def test_jobs_have_limits_and_few_rights() -> None:
    """Each job ends by itself, and only the one that publishes may write, having built nothing."""
    may_write = []
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}, path
        for name, job in workflow["jobs"].items():
            assert 0 < job["timeout-minutes"] <= MINUTES_MAX, (path, name)
            for step in job["steps"]:
                if step.get("uses", "").startswith("actions/checkout@"):
                    assert step["with"]["persist-credentials"] is False, (path, name)
            if "permissions" in job:
                may_write.append(name)
                assert not any("make " in step.get("run", "") for step in job["steps"])
    assert may_write == ["publish"]


def test_hooks_are_those_of_lint() -> None:
    """The hooks of pre-commit run the commands of make lint, one by one."""
    makefile = (REPOSITORY / "Makefile").read_text()
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe
    lint = [line.lstrip("\t@").replace("$(BIN)", ".venv/bin") for line in recipe[1].splitlines()]
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text())
    entries = [hook["entry"] for repository in hooks["repos"] for hook in repository["hooks"]]
    assert sorted(entries) == sorted(lint)


def test_notes_of_a_release_are_its_own() -> None:
    """The notes have the changes of their version, and none of the one before."""
    changelog = (REPOSITORY / "CHANGELOG.md").read_text()
    versions = [name for name in release.sections(changelog) if name != "Unreleased"]
    for number, other in pairwise(versions):
        text = release.notes(number, changelog)
        assert text.startswith("## To do first\n"), number
        assert release.sections(changelog)[other].splitlines()[-1] not in text
    with pytest.raises(LookupError, match=r"no changes of 99\.0\.0"):
        release.notes("99.0.0", changelog)


@pytest.mark.parametrize(
    ("changelog", "tags", "changed", "first"),
    [
        ("## [1.2.0] - 2026-01-02\n\n- A change.\n", "v1.1.0\n", "", None),
        ("## [1.2.0] - 2026-01-02\n\n- A change.\n", "v1.1.0\n", " M x\n", "commit"),
        ("## [1.2.0] - 2026-01-02\n\n- A change.\n", "v1.1.0\nv1.2.0\n", "", "v1.2.0 is tagged"),
        ("## [Unreleased]\n\n- A change.\n", "", "", "its version and date"),
        ("## [1.1.0] - 2026-01-01\n\n- A change.\n", "", "", "write the section [1.2.0]"),
    ],
)
def test_a_release_says_what_is_to_be_done_first(
    changelog: str, tags: str, changed: str, first: str | None
) -> None:
    """A version is released from a clean tree, once, with changes of its own."""
    faults = list(release.faults("1.2.0", changelog, tags=tags, changed=changed))
    assert (first is None) == (faults == [])
    assert first is None or first in faults[0]


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
