"""``parley plugin``: list and check plugins of other distributions, and write a skeleton.

These commands look at the Parley of this host, not at a node: plugins are installed beside it.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import string
import traceback
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from node.cli.groups import command_group
from node.cli.invocation import Invocation
from node.cli.options import options
from node.cli.output import Column, RecordLayout, aligned_text, cell_text, plural
from node.cli.session import runs_here
from node.execution.trial import Trial, run_trial
from node.model.errors import FieldFault, HostError, InvalidDocument, NotFound, ParleyError
from node.model.wire.validation import faults_of
from node.plugins import conformity, registry
from node.plugins.conformity import ConformityCheck
from node.plugins.contracts import ArchivingHost, Test, Tool
from node.plugins.discovery import NAME, DiscoveredPlugin
from node.results.archivers import archivers, missing_requirement
from node.results.archivers import third_party_archivers as foreign_archivers
from node.runtime.clock import SystemClock

PLUGIN = RecordLayout(
    "name,kind,from,fault,but",
    Column("name", lambda plugin: plugin["name"], whole=True),
    Column("kind", lambda plugin: plugin["kind"]),
    Column("from", lambda plugin: plugin["from"]),
    Column("can be used", lambda plugin: plugin["fault"] or plugin["but"] or "yes"),
)

_FILES = {
    "pyproject.toml.template": "pyproject.toml",
    "__init__.py.template": "$package/__init__.py",
    "$kind/README.md.template": "README.md",
    "$kind/test_plugin.py.template": "tests/test_$module.py",
}
_FILES_OF = {
    "test": {
        "test/test.py.template": "$package/test.py",
        "test/tool.py.template": "$package/tool.py",
        "test/program.py.template": "$package/program.py",
    },
    "archiver": {"archiver/archiver.py.template": "$package/archiver.py"},
}


plugin_group = command_group("plugin")


@plugin_group.command("list")
@runs_here
def list_plugins(invocation: Invocation) -> None:
    """List Parley's own plugins and others, including unusable ones with the reason."""
    own = {"tests": registry.tests(), "tools": registry.tools(), "archivers": archivers()}
    foreign = _foreign_plugins()
    known = {(each.group, each.name) for each in foreign}
    rows = [
        _plugin_row(name, kind, "parley")
        for kind, plugins in own.items()
        for name in sorted(plugins)
        if (f"parley.{kind}", name) not in known
    ]
    for each in foreign:
        kind, source = each.group.removeprefix("parley."), f"{each.distribution} {each.version}"
        rows.append(_plugin_row(each.name, kind, source, each.fault))
    invocation.writer().print_list(rows, PLUGIN)


def _plugin_row(name: str, kind: str, source: str, fault: str | None = None) -> dict[str, Any]:
    """Return what is told of a plugin: its fault, or what restricts it although it can be used."""
    if fault is None and kind == "archivers":
        fault = missing_requirement(archivers()[name])
    tool = registry.tools().get(name) if kind == "tools" else None
    untried = tool is not None and tool.requirement is not None and not tool.tried
    but = "only if a task names it: it was never tried with a real program" if untried else None
    return {"name": name, "kind": kind[:-1], "from": source, "fault": fault, "but": but}


def _foreign_plugins() -> tuple[DiscoveredPlugin, ...]:
    return (*registry.third_party_plugins(), *foreign_archivers())


@plugin_group.command("test")
@click.argument("name")
@options("""
    --run as running      Also measure once, on this host alone; or try the archiver without
                          delivering a result.
    --spec JSON as given  With --run: the spec of the test [its own example], or of the archiver.
""")
@runs_here
def check_plugin(_: Invocation, name: str, running: bool, given: str | None) -> int:
    """Check whether the plugin NAME keeps its contract; exit code 1 if it does not."""
    usable, conforms = _check(name, given)
    if running and usable:
        conforms = _run_reporting_faults(name, given) and conforms
    return 0 if conforms else 1


def _check(name: str, given: str | None) -> tuple[bool, bool]:
    """Print the checks of a plugin; return whether it is usable, and whether it has no faults."""
    tests, tools = registry.tests(), registry.tools()
    checks = [
        ConformityCheck(f"{name} of {each.distribution} can be used", each.fault)
        for each in _foreign_plugins()
        if each.name == name and each.fault is not None
    ]
    usable = not checks
    if usable and name not in {*tests, *tools, *archivers()}:
        known = ", ".join(sorted({*tests, *tools, *archivers()}))
        raise NotFound(f"there is no plugin {name!r} on this host; choose one of: {known}")
    if usable and name in tests:
        checks += conformity.checks_of_test(tests[name])
    if usable and name in tools:
        checks += conformity.checks_of_tool(tools[name], tests)
    if usable and (archiver := archivers().get(name)) is not None:
        checks += conformity.checks_of_archiver(archiver, None if given is None else _json(given))
    _show(checks)
    faults = sum(check.fault is not None for check in checks)
    summary = f": {plural(faults, 'fault')} to fix" if faults else " keeps the contract"
    click.echo(f"{name}{summary}")
    return usable, not faults


def _show(checks: Sequence[ConformityCheck]) -> None:
    for check in checks:
        click.echo(f"{'✗' if check.fault else '✓'} {check.sentence}")
        if check.fault:
            click.echo(f"    {check.fault}")


def _run_reporting_faults(name: str, given: str | None) -> bool:
    """Use the plugin once; print an exception of its own as its fault. Return whether it worked."""
    try:
        if name not in archivers():
            return _run(name, given)
        click.echo(f"✓ {asyncio.run(_try_archiver(name, given))}")
    except ParleyError:
        raise
    except Exception as error:  # noqa: BLE001 - the exceptions of a foreign plugin are what is tested
        last = traceback.extract_tb(error.__traceback__)[-1]
        click.echo(f"✗ {name} raised {type(error).__name__}: {error}")
        click.echo(f"    {last.filename}, line {last.lineno}, in {last.name}")
        return False
    return True


async def _try_archiver(name: str, given: str | None) -> str:
    """Connect to the destination of an archiver; return its description.

    :raises ArchiverFailed: results cannot be delivered there.
    """
    archiver = archivers()[name]
    try:
        spec = archiver.spec_model.model_validate({} if given is None else _json(given))
    except ValidationError as error:
        raise InvalidDocument(faults_of(error, archiver.spec_model, "--spec")) from None
    host = ArchivingHost("this-host", (Path.cwd(),), SystemClock().now)
    if (refused := archiver.refusal(spec, host)) is not None:
        raise InvalidDocument([FieldFault(f"--spec/{refused[0]}", refused[1])])
    destination = archiver.open(spec, host)
    try:
        return await destination.test()
    finally:
        await destination.close()


def _run(name: str, given: str | None) -> bool:
    tests, tools = registry.tests(), registry.tools()
    tool = tools.get(name) or next(iter(registry.tools_for(name)), None)
    if tool is None:
        raise HostError(f"there is no tool for {name} on this host")
    test = tests[name] if name in tests else tests[tool.tests[0]]
    spec = _spec(test, given)
    trial = asyncio.run(run_trial(test, tool, spec, SystemClock()))
    for line in _trial_lines(test, tool, trial):
        click.echo(line)
    result = trial.merged.result
    if not trial.merged.succeeded or result is None:
        return trial.merged.succeeded
    checks = conformity.checks_of_result(test, result)
    _show(checks)
    if conforms := not any(check.fault for check in checks):
        click.echo(f"✓ {test.summary(result)}")
    click.echo(aligned_text([(f"  {name}", cell_text(value)) for name, value in result.items()]))
    return conforms


def _json(given: str) -> Any:
    try:
        document = json.loads(given)
    except ValueError as error:
        raise InvalidDocument([FieldFault("--spec", f"is not JSON: {error}")]) from None
    if not isinstance(document, dict):
        raise InvalidDocument([FieldFault("--spec", "is not a JSON object")])
    return document


def _spec(test: Test, given: str | None) -> Any:
    document = dict(test.example) if given is None else _json(given)
    try:
        return test.spec_model.model_validate(document)
    except ValidationError as error:
        raise InvalidDocument(faults_of(error, test.spec_model, "--spec")) from None


def _trial_lines(test: Test, tool: Tool, trial: Trial) -> Iterator[str]:
    yield f"\n{test.name} by {tool.name}, on this host alone:"
    for part_trial in trial.parts:
        yield f"  {part_trial.participant}: {' '.join(part_trial.argv)}"
        if part_trial.part.reason:
            yield f"    {part_trial.part.reason}"
    if trial.merged.reason:
        yield f"✗ {trial.merged.reason}"


@plugin_group.command("new")
@click.argument("name")
@options(
    "--kind [test|archiver]  What to create: a test with its tool [test], or an archiver.",
    default="test",
)
@options(
    "--directory DIRECTORY  Where to write it [parley-NAME in the current directory].",
    {"DIRECTORY": click.Path(file_okay=False, path_type=Path)},
)
@runs_here
def new_plugin(_: Invocation, name: str, kind: str, directory: Path | None) -> None:
    """Write a package with a test and a tool, or an archiver, and its tests; it works as it is."""
    place = _write(name, kind, directory or Path(f"parley-{name}"))
    if kind == "test":
        contents, spec = f"a test and a tool {name} that work", ""
    else:
        path = json.dumps({"path": str(Path.cwd() / "results.sqlite")})
        contents, spec = f"an archiver {name} that works", f" --spec {shlex.quote(path)}"
    click.echo(f"{place} has {contents}: start with its README.md.")
    click.echo(f"  pip install --editable {place} && parley plugin test {name} --run{spec}")


def _write(name: str, kind: str, directory: Path) -> Path:
    if not NAME.fullmatch(name):
        sentence = (
            "has characters other than a-z, 0-9 and -, does not begin with a letter, or is too long"
        )
        raise InvalidDocument([FieldFault("NAME", sentence)])
    if name in {*registry.tests(), *registry.tools(), *archivers()}:
        raise InvalidDocument([FieldFault("NAME", f"{name} exists already; choose another name")])
    if directory.exists() and any(directory.iterdir()):
        raise InvalidDocument([FieldFault("--directory", f"{directory} is not empty")])
    module = name.replace("-", "_")
    words = {
        "name": name,
        "kind": kind,
        "module": module,
        "package": f"parley_{module}",
        "Class": "".join(part.capitalize() for part in name.split("-")),
    }
    words["entry_points"] = _filled_template(f"{kind}/entry_points.toml.template", words).rstrip()
    for template, target in (_FILES | _FILES_OF[kind]).items():
        path = directory / string.Template(target).substitute(words)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_filled_template(string.Template(template).substitute(words), words))
        except OSError as error:
            raise HostError(f"{path} cannot be written: {error.strerror}") from error
    return directory


def _filled_template(template: str, words: Mapping[str, str]) -> str:
    text = (resources.files("node.plugins.skeleton") / template).read_text()
    return string.Template(text).substitute(words)
