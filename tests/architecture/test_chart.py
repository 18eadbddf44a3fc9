"""The chart and the files of Patroni: what they make, and that it agrees with program and images.

The chart uses few directives, so that this test renders it; ``helm lint`` reads it where there is
helm.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from node.runtime.settings import Settings
from tests.architecture.sources import REPOSITORY

CHART = REPOSITORY / "deploy/chart"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
RELEASE = "parley-a"
_LOOP = re.compile(
    r"^ *\{\{- range \$name, \$value := \.Values\.settings \}\}\n(.*?)^ *\{\{- end \}\}\n",
    re.DOTALL | re.MULTILINE,
)
_DIRECTIVE = re.compile(r"\{\{ ([.$][\w.]+)( \| quote)? \}\}")


def render(text: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the documents that helm makes of a template which uses these directives only."""

    def fill(part: str, names: Mapping[str, Any]) -> str:
        def value(found: re.Match[str]) -> str:
            it: Any = names
            for word in found[1].split("."):
                it = it[word] if word else it
            return json.dumps(str(it)) if found[2] else str(it)

        return _DIRECTIVE.sub(value, part)

    def loop(found: re.Match[str]) -> str:
        items = values["settings"].items()
        return "".join(fill(found[1], {"$name": name, "$value": it}) for name, it in items)

    names = {"Values": values, "Release": {"Name": RELEASE}}
    filled = fill(_LOOP.sub(loop, text), names)
    assert "{{" not in filled, "a directive that this test does not know"
    return list(yaml.safe_load_all(filled))


def documents(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what a release makes, by kind."""
    files = sorted((CHART / "templates").glob("*.yaml"))
    return {it["kind"]: it for file in files for it in render(file.read_text(), values)}


def test_the_chart_is_of_this_version() -> None:
    """Chart and program have one version."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert {chart["version"], chart["appVersion"]} == {project["version"]}


def test_settings_of_the_chart_exist() -> None:
    """The chart sets settings of the program, and a value may add others."""
    values = VALUES | {"settings": {"PARLEY_TARGETS": "10.0.0.0/8"}}
    settings = documents(values)["ConfigMap"]["data"]
    assert settings["PARLEY_NAME"] == VALUES["name"]
    assert settings["PARLEY_TARGETS"] == "10.0.0.0/8"
    assert {it.removeprefix("PARLEY_").lower() for it in settings} <= set(Settings.model_fields)


def test_one_pod_on_one_host_measures_by_its_network() -> None:
    """There is one pod, on the chosen host and its network; the old one ends before the next."""
    deployment = documents(VALUES)["Deployment"]["spec"]
    pod = deployment["template"]["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    assert pod["hostNetwork"]
    assert pod["nodeSelector"] == {"kubernetes.io/hostname": VALUES["host"]}
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]


@pytest.mark.parametrize("name", ["node", "lead", "tools"])
def test_containers_have_what_they_need_and_no_more(name: str) -> None:
    """Each container has a limit and no right; tools alone have a capability, and see no secret."""
    pod = documents(VALUES)["Deployment"]["spec"]["template"]["spec"]
    [container] = [it for it in pod["containers"] if it["name"] == name]
    context = container["securityContext"]
    mounted = {it["mountPath"] for it in container["volumeMounts"]}
    assert context["readOnlyRootFilesystem"]
    assert context["capabilities"]["drop"] == ["ALL"]
    assert container["resources"]["limits"]["memory"] == VALUES["memory"][name]
    assert {it["name"] for it in container["volumeMounts"]} <= {it["name"] for it in pod["volumes"]}
    if name == "tools":
        assert context["capabilities"]["add"] == ["NET_RAW"]
        assert "/var/lib/parley" not in mounted
        assert "envFrom" not in container
        assert [it["name"] for it in container["env"]] == ["PARLEY_TOOL_SOCKET"]
    else:
        assert "add" not in context["capabilities"]
        assert not context["allowPrivilegeEscalation"]
        secret = container["env"][0]["valueFrom"]["secretKeyRef"]
        assert secret == {"name": VALUES["database"]["secret"], "key": "dsn"}


def test_accounts_of_the_chart_are_those_of_the_image() -> None:
    """The numbers of the accounts, and the programs, are those that the images have."""
    recipe = (REPOSITORY / "deploy/container/Containerfile").read_text()
    pod = documents(VALUES)["Deployment"]["spec"]["template"]["spec"]
    tools = pod["containers"][-1]
    for account, number in (("parley", 8642), ("parley-tool", 8643)):
        assert f"useradd --uid {number} --gid {account} " in recipe
    assert pod["securityContext"]["runAsUser"] == 8642
    assert tools["securityContext"]["runAsUser"] == 8643
    for program in (tools["command"][0], tools["command"][-1]):
        assert f"/usr/local/bin/{program}" in recipe


def test_probes_ask_what_needs_no_token() -> None:
    """The node is alive by its health, and ready by its readiness, over TLS."""
    pod = documents(VALUES)["Deployment"]["spec"]["template"]["spec"]
    node = pod["containers"][0]
    probes = {
        name: node[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")
    }
    assert {it["scheme"] for it in probes.values()} == {"HTTPS"}
    assert probes["liveness"]["path"] == "/healthz"
    assert probes["readiness"]["path"] == "/readyz"


def test_patroni_loses_nothing_and_gives_up_in_time() -> None:
    """Commits are synchronous, and a primary gives up before it is replaced."""
    configuration = yaml.safe_load((REPOSITORY / "deploy/patroni/patroni.yml").read_text())
    shared = configuration["bootstrap"]["dcs"]
    assert shared["synchronous_mode"] is True
    assert shared["postgresql"]["parameters"]["synchronous_commit"] == "on"
    assert shared["loop_wait"] + 2 * shared["retry_timeout"] <= shared["ttl"]
    page = (REPOSITORY / "docs/how-to/patroni.md").read_text()
    assert f"with a `ttl` of {shared['ttl']} s" in page
