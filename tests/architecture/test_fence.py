"""Import rules that the layers in pyproject.toml cannot express."""

from __future__ import annotations

import ast
import graphlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

from tests.architecture.sources import (
    PRODUCT,
    REPOSITORY,
    dotted,
    files,
    module_name,
    nodes,
    parsed,
)

LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")

PAGE_IMPORT = re.compile(r"""\b(?:from |import |import\()"\./([\w-]+\.js)"(?!\)\.)""")
"""The script that a script of the page loads; its comments only name types of others."""

SOLE_IMPORTERS = {
    "apscheduler": ("node.runtime.housekeeping",),
    "difflib": ("node.model.similar",),
    "asyncpg": ("node.store", "lead.store", "lead.simulation.driver"),
    "portion": ("node.model.spans",),
    # The plugins' modules are programs of their own: one runs the system's ping, the others
    # supervise programs.
    "subprocess": (
        "node.execution.process",
        "node.plugins.tools.programs.attended",
        "node.plugins.tools.programs.irttbg_client",
        "node.plugins.tools.programs.irttbg_server",
        "node.plugins.tools.programs.mtu_search",
        "node.plugins.tools.programs.snmp_counters",
    ),
    "multiprocessing": (),
    "lead": ("lead", "node.cli"),
}
"""By library or package, the only modules (with all below them) that may import it."""

COMPUTING_ASIDE = {
    "lead.exchange.campaign_limits",
    "lead.pool.policy_preview",
    "lead.exchange.preview",
    "node.api.mesh_files",
    "node.results.bundles.making",
    "node.execution.launcher",
    "node.plugins.archivers.s3",
    "node.pscheduler.archived",
    "node.pscheduler.telling",
    "node.store.results",
}
"""The modules that compute something in asyncio's pool; what may hang has a thread of its own.

Commands are processes of their own, in which nobody else waits.
"""

OPEN_TO_LEAD = (
    "node.model",
    "node.runtime.clock",
    "node.runtime.batching",
    "node.runtime.gathering",
    # Node and lead have their periodic jobs run in the same way.
    "node.runtime.housekeeping",
    # A lead times its work as its node does, and the node shows both.
    "node.runtime.instruments",
    # What a lead asks for one plan belongs to one trace, here and at the other nodes.
    "node.runtime.tracing",
    "node.store.database",
    "node.store.notices",
    "node.store.statements",
    # A decision and its messages are written in one transaction, and the messages are sent like
    # the node's own.
    "node.store.outbox",
    "node.journal.outbox",
    # All changes of a task use the same lock.
    "node.store.tasks",
    # The plan of an edit counts what the edit itself would free.
    "node.store.changes",
    # What follows a run is created in the transaction that ends it, also if it found no time.
    "node.store.dependencies",
    # Whoever ends or changes a task tells what its lead would have told.
    "node.store.gaps",
    # Policies need the settings of pools, and of the campaigns that share them.
    "node.store.campaigns",
    "node.store.pools",
    "node.store.reservations",
)
"""The modules of node that lead may import; their own imports do not matter here."""

ASSEMBLING = ("lead.assembly.with_node", "lead.simulation")
"""The parts of lead that build nodes."""

CLOSED_TO_SIMULATION = ("node.api", "node.cli")
"""The simulation assembles whole nodes over a Postgres, but none of the parts at a border."""

PLUGIN_FOLDERS = ("node.plugins.tests", "node.plugins.tools", "node.plugins.archivers")


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """All imports of node and lead, including lazy ones and those for types only."""
    return grimp.build_graph(*PRODUCT, include_external_packages=True, cache_dir=None)


def within(module: str, *places: str) -> bool:
    """Return whether a module is one of these places or lies below one."""
    return any(module == place or module.startswith(f"{place}.") for place in places)


def imports(graph: grimp.ImportGraph) -> Iterator[tuple[str, str]]:
    """Yield every direct import as (importer, imported)."""
    for importer in sorted(graph.modules):
        for imported in sorted(graph.find_modules_directly_imported_by(importer)):
            yield importer, imported


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of the repository, or of a copy of it, in that folder."""
    argv = [str(LINT_IMPORTS), "--no-cache", "--no-logo"]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


def test_the_layers_hold() -> None:
    """No module imports from a layer above its own, and the deciding modules are pure."""
    outcome = lint_imports(REPOSITORY)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize("package", PRODUCT)
def test_a_module_without_a_place_fails(tmp_path: Path, package: str) -> None:
    """A new module that no layer names breaks the build until somebody gives it a place."""
    for name in PRODUCT:
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    (tmp_path / package / "stray.py").write_text('"""A module nobody placed."""\n')
    outcome = lint_imports(tmp_path)
    assert outcome.returncode == 1
    assert f"{package}.stray" in outcome.stdout


def test_every_file_is_seen(graph: grimp.ImportGraph) -> None:
    """No file escapes the fence because its folder lacks an ``__init__.py``."""
    assert {module_name(path) for path in files(*PRODUCT)} - graph.modules == set()


def test_no_modules_import_each_other_in_a_circle(graph: grimp.ImportGraph) -> None:
    """Every module can be read after those that it imports, imports for types included."""
    imported: dict[str, set[str]] = {}
    for importer, other in imports(graph):
        if within(other, *PRODUCT):
            imported.setdefault(importer, set()).add(other)
    graphlib.TopologicalSorter(imported).prepare()


def test_no_modules_of_the_page_import_each_other_in_a_circle() -> None:
    """Every script of the page can be read after those that it loads, at once or later."""
    scripts = {path.name: path.read_text() for path in (REPOSITORY / "node/web").glob("*.js")}
    loaded = {name: set(PAGE_IMPORT.findall(text)) for name, text in scripts.items()}
    assert set().union(*loaded.values()) < set(scripts)
    assert loaded["views.js"] > {"view-tasks.js", "dom.js"}, "both ways to load are found"
    graphlib.TopologicalSorter(loaded).prepare()


def test_each_dangerous_library_has_its_importers(graph: grimp.ImportGraph) -> None:
    """Only the stores speak to Postgres, only one module starts programs, and so on."""
    trespasses = [
        f"{importer} imports {imported}"
        for importer, imported in imports(graph)
        for library, importers in SOLE_IMPORTERS.items()
        if within(imported, library) and not within(importer, *importers)
    ]
    assert trespasses == []


def test_lead_takes_only_the_open_parts_of_node(graph: grimp.ImportGraph) -> None:
    """The lead uses node's domain and its clock, not its internals."""
    trespasses = [
        f"{importer} imports {imported}"
        for importer, imported in imports(graph)
        if within(importer, "lead")
        and not within(importer, *ASSEMBLING)
        and within(imported, "node")
        and not within(imported, *OPEN_TO_LEAD)
    ]
    assert trespasses == []


def test_lead_uses_every_open_part(graph: grimp.ImportGraph) -> None:
    """No part of node stays open to the lead after the lead has stopped using it."""
    used = {
        place
        for importer, imported in imports(graph)
        for place in OPEN_TO_LEAD
        if within(importer, "lead")
        and not within(importer, *ASSEMBLING)
        and within(imported, place)
    }
    assert set(OPEN_TO_LEAD) - used == set()


def test_the_simulation_takes_no_real_border_of_a_node(graph: grimp.ImportGraph) -> None:
    """A simulated node has no API, no page, no command line, and no Postgres."""
    trespasses = [
        f"{importer} imports {imported}"
        for importer, imported in imports(graph)
        if within(importer, "lead.simulation") and within(imported, *CLOSED_TO_SIMULATION)
    ]
    assert trespasses == []


def test_only_commands_know_the_facade(graph: grimp.ImportGraph) -> None:
    """Nothing but what starts a node imports the folder that speaks to pScheduler."""
    trespasses = [
        f"{importer} imports {imported}"
        for importer, imported in imports(graph)
        if within(imported, "node.pscheduler")
        and not within(importer, "node.pscheduler", "node.cli")
    ]
    assert trespasses == []


@pytest.mark.parametrize(
    "folder", ["lead/exchange", "lead/planning", "lead/pool", "lead/store", "node/timetable"]
)
def test_planning_and_booking_do_not_know_the_word(folder: str) -> None:
    """Leads and time lines see ordinary tasks and bookings, whoever asked for them."""
    sources = [path for path in (REPOSITORY / folder).rglob("*") if path.suffix in {".py", ".sql"}]
    assert sources
    assert [str(path) for path in sources if "pscheduler" in path.read_text("utf-8").lower()] == []


def test_plugins_of_one_kind_do_not_know_each_other(graph: grimp.ImportGraph) -> None:
    """A plugin can be added or removed without changing the others."""
    trespasses = [
        f"{importer} imports {imported}"
        for folder in PLUGIN_FOLDERS
        for importer, imported in imports(graph)
        if importer.rpartition(".")[0] == folder == imported.rpartition(".")[0]
    ]
    assert trespasses == []


def test_policies_of_one_axis_do_not_know_each_other(graph: grimp.ImportGraph) -> None:
    """Each algorithm stands alone; only the named sets put algorithms together."""
    trespasses = [
        f"{importer} imports {imported}"
        for importer, imported in imports(graph)
        if importer.startswith("lead.policy.")
        and importer.count(".") > 2
        and importer.rpartition(".")[0] == imported.rpartition(".")[0]
    ]
    assert trespasses == []


def test_nobody_uses_the_shared_generator() -> None:
    """Randomness comes from a generator that was handed in, so that a plan can be repeated."""
    uses = [
        f"{path}:{node.lineno} {name}"
        for path, tree in parsed(*PRODUCT)
        for node in nodes(tree)
        if isinstance(node, ast.Attribute)
        and (name := dotted(node)).startswith("random.")
        and name not in {"random.Random", "random.SystemRandom"}
    ]
    imported = [
        f"{path}:{node.lineno} from random import …"
        for path, tree in parsed(*PRODUCT)
        for node in nodes(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "random"
    ]
    assert uses + imported == []


def test_the_pool_of_threads_is_for_computations() -> None:
    """No call that waits for a disk or a name server keeps a thread that others wait for."""
    callers = {
        module_name(REPOSITORY / name)
        for name, tree in parsed(*PRODUCT)
        for node in nodes(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"to_thread", "run_in_executor"}
    }
    assert {each for each in callers if not within(each, "node.cli")} == COMPUTING_ASIDE
