"""``make contained``: the images of ``deploy/container``, built, and run as two nodes by compose.

The base of the images is a Debian root of debootstrap, so no registry of images is needed. Two
nodes run by ``deploy/container/compose.yml``, each in a network of its own, joined by a cable. Each
step types what the documentation says and checks what is promised. It needs root, debootstrap,
podman and iproute2, and about eight minutes. ``--keep`` leaves the images for the next time.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import os
import shutil
import signal
import sys
import time

from deploy.package import REPOSITORY
from tests.booted.machine import MIRROR, lay_cable
from tests.contained.host import PLACE, Host, environment, podman
from tests.support.steps import Failed, complete, require, run, tell_story, wait_until

STOP_MAX_S = 35
"""Less than the services are given in compose.yml before they are killed."""
BASE = "localhost/parley-test-base:12"
TARGETS = {"node": "localhost/parley", "database": "localhost/parley-database"}
EARLIER, TODAY = "earlier", "today"
SERVICES = ("database", "tools", "node", "lead")
RELEASE = REPOSITORY / "tests/releases/schema_6.sql.gz"
NEEDS = {"debootstrap": "debootstrap", "podman": "podman", "ip": "iproute2"}
KILLED = str(128 + signal.SIGKILL)


class Story:
    """Both hosts, and what one step leaves for the next."""

    def __init__(self, a: Host, b: Host) -> None:
        """Tell it on these hosts."""
        self.a, self.b = a, b
        self.keys: dict[str, str] = {}

    def build(self) -> None:
        """Both images are built from a bare Debian 12."""
        make_base()
        for target, image in TARGETS.items():
            build(target, f"{image}:{TODAY}")
            recipe = f"FROM {image}:{TODAY}\nLABEL version={EARLIER}\n"
            podman("build", "--quiet", "--tag", f"{image}:{EARLIER}", "--file", "-", given=recipe)

    def start(self) -> None:
        """Compose starts a node and its Postgres on each host, and they are healthy."""
        lay_cable(self.a, self.b)
        for host in (self.a, self.b):
            host.write_settings()
            host.compose("up", "--detach", "--no-build")
        for host in (self.a, self.b):
            wait_until_ready(host)
            for service in ("node", "database"):
                host.check_health(service)
            self.keys[host.name] = identity(host)

    def confine(self) -> None:
        """Nothing is root, one port is open, and the tools see neither key nor database."""
        for service in SERVICES:
            processes = podman("top", self.a.container(service), "huser", "capeff", "comm")
            rows = [it.split() for it in processes.splitlines()[1:]]
            require(bool(rows), f"{service} runs")
            require(all(it[0] not in {"root", "0"} for it in rows), f"nothing is root: {rows}")
            allowed = {"NET_RAW", "none"} if service == "tools" else {"none"}
            require(all(it[1] in allowed for it in rows), f"no capabilities: {rows}")
        ports = self.a.network("ss", "--listening", "--tcp", "--numeric", "--no-header")
        require(":8642" in ports and ":5432" not in ports, f"one port is open: {ports}")
        for path in ("/var/lib/parley/node.pem", "/run/postgresql/.s.PGSQL.5432"):
            self.a.type(f"test -e {path}")
            require(not self.a.try_(f"test -e {path}", "tools"), f"the tools do not see {path}")

    def measure(self) -> None:
        """After each owner has added the other's node, tasks between the containers measure."""
        a, b = self.a, self.b
        for host, other in ((a, b), (b, a)):
            key = self.keys[other.name]
            host.type(f"parley node add https://{other.address}:8642 --identity {key}")
        a.type(f"parley rtt {b.address} --count 3")
        a.type(f"parley latency {a.name} {b.name} --count 10")
        a.type(f"parley throughput {a.name} {b.name} --duration 2s --congestion host")
        a.type(f"parley trace {b.address}")
        finished = finished_runs(a)
        a.type(f"parley latency {a.name} {b.name} --count 10 --repeat 15s --no-wait")
        wait_until(lambda: finished_runs(a) > finished, "a run of the task finishes")

    def kill(self) -> None:
        """Processes that are killed come back."""
        for service in SERVICES:
            before = self.a.inspect(service, "{{.State.Pid}}")
            os.kill(int(before), signal.SIGKILL)
            wait_until(
                lambda it=service, was=before: (  # type: ignore[misc]
                    self.a.inspect(it, "{{.State.Pid}}") not in {was, "0"}
                ),
                f"{service} is back",
            )
        wait_until_ready(self.a)
        self.a.type(f"parley latency {self.a.name} {self.b.name} --count 10")

    def upgrade(self) -> None:
        """An upgrade of the images keeps the key, the tasks and the runs, and the task goes on."""
        tasks, finished = task_ids(self.a), finished_runs(self.a)
        self.a.type("parley admin backup --to /var/backups/parley --keep 14")
        before = {it: self.a.inspect(it, "{{.Image}}") for it in SERVICES}
        self.a.version = TODAY
        self.a.compose("up", "--detach", "--no-build")
        wait_until_ready(self.a)
        for service in SERVICES:
            new = self.a.inspect(service, "{{.Image}}")
            require(new != before[service], f"{service} has the new image")
        self._require_kept(tasks)
        wait_until(lambda: finished_runs(self.a) > finished, "a run after the upgrade finishes")

    def _require_kept(self, tasks: list[str]) -> None:
        require(identity(self.a) == self.keys[self.a.name], "the key is the same")
        require(task_ids(self.a) == tasks, "the tasks are there")

    def restore(self) -> None:
        """The backup from before the upgrade is restored, and the node finds its way from there."""
        tasks = task_ids(self.a)
        self.a.compose("stop", "lead", "node")
        line = "parley admin restore --replace $(ls -t /var/backups/parley/*.parley | head -1)"
        self.a.compose("run", "--rm", "--no-deps", "-T", "node", "sh", "-c", line)
        self.a.compose("up", "--detach", "--no-build")
        wait_until_ready(self.a)
        self._require_kept(tasks)
        finished = finished_runs(self.a)
        wait_until(lambda: finished_runs(self.a) > finished, "the task goes on")

    def migrate(self) -> None:
        """The start of the new images migrates a database of 0.2, and its runs are there."""
        self.b.compose("stop", "lead", "node")
        self.b.ask("DROP DATABASE parley", "postgres")
        self.b.ask("CREATE DATABASE parley OWNER parley", "postgres")
        dump = gzip.decompress(RELEASE.read_bytes()).decode()
        self.b.ask(f"SET SESSION AUTHORIZATION parley;\n{dump}")
        known = self.b.ask("SELECT identity FROM node WHERE is_self")
        self.b.ask("DROP DATABASE parley", "postgres")
        self.b.ask("CREATE DATABASE parley OWNER parley", "postgres")
        own = dump.replace(known, self.keys[self.b.name])
        self.b.ask(f"SET SESSION AUTHORIZATION parley;\n{own}")
        before = finished_runs(self.b)
        self.b.version = TODAY
        self.b.compose("up", "--detach", "--no-build")
        wait_until(lambda: self.b.try_("curl -fsS http://127.0.0.1:8642/healthz"), "it serves")
        require(finished_runs(self.b) >= before > 0, "the runs are there")
        require("nothing to do" in self.b.type("parley admin migrate --output table"), "migrated")

    def stop(self) -> None:
        """Told to stop, all services end at once, and start with what they had."""
        tasks = task_ids(self.a)
        began = time.monotonic()
        self.a.compose("stop")
        require(time.monotonic() - began < STOP_MAX_S, "nothing waits to be killed")
        for service in SERVICES:
            code = self.a.inspect(service, "{{.State.ExitCode}}")
            expected = KILLED if service == "tools" else "0"
            require(code == expected, f"{service} ended with {expected}, not with {code}")
        self.a.compose("up", "--detach", "--no-build")
        wait_until_ready(self.a)
        self._require_kept(tasks)

    def remove(self) -> None:
        """Containers are removed without the data, and the data with the volumes."""
        tasks = task_ids(self.a)
        self.a.compose("down")
        self.a.compose("up", "--detach", "--no-build")
        wait_until_ready(self.a)
        self._require_kept(tasks)
        for host in (self.a, self.b):
            host.compose("down", "--volumes")
            require(not host.volumes(), f"no volume is left of {host.volumes()}")


def make_base() -> None:
    """Make the image of a bare Debian 12, which reaches registries as this host does."""
    if not complete(["podman", "image", "exists", BASE], environment=environment()).returncode:
        return
    root = PLACE / "base"
    shutil.rmtree(root, ignore_errors=True)
    run("debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", root, MIRROR)
    shutil.copy2("/etc/ssl/certs/ca-certificates.crt", root / "etc/ssl/certs/ca-certificates.crt")
    prefix = "PIP_"
    told = {it.removeprefix(prefix): os.environ[it] for it in os.environ if it.startswith(prefix)}
    lines = [f"{name.lower().replace('_', '-')} = {value}" for name, value in told.items()]
    (root / "etc/pip.conf").write_text("\n".join(["[global]", *lines, ""]))
    archive = PLACE / "base.tar"
    run("tar", "--create", "--file", archive, "--directory", root, ".")
    podman("import", str(archive), BASE)
    archive.unlink()
    shutil.rmtree(root)


def build(target: str, tag: str) -> None:
    """Build one of the images."""
    argv = ("--file", "deploy/container/Containerfile", "--target", target, "--tag", tag)
    options = ("--quiet", "--layers", "--network=host", "--build-arg", f"BASE={BASE}")
    podman("build", *options, *argv, str(REPOSITORY))


def wait_until_ready(host: Host) -> None:
    """Wait until a node has its database, its lead, and its tools."""
    wait_until(
        lambda: host.try_("curl -fsS http://127.0.0.1:8642/readyz"), f"{host.name} is ready", 150
    )


def identity(host: Host) -> str:
    """Return the key of the node of a host."""
    shown = host.type("parley node show --output json")
    return "ed25519:" + shown.partition("ed25519:")[2].partition('"')[0]


def task_ids(host: Host) -> list[str]:
    """Return the tasks of the node of a host."""
    return sorted(host.type("parley task list --output ids").split())


def finished_runs(host: Host) -> int:
    """Return how many runs have finished on a host."""
    return int(host.ask("SELECT count(*) FROM run WHERE state = 'finished'"))


def tell(*, keep: bool) -> str | None:
    """Tell the story on two hosts; return the error message of the step that fails."""
    a, b = Host("east", "10.78.0.1", EARLIER), Host("west", "10.78.0.2", EARLIER)
    story = Story(a, b)
    parts = (
        story.build,
        story.start,
        story.confine,
        story.measure,
        story.kill,
        story.upgrade,
        story.restore,
        story.migrate,
        story.stop,
        story.remove,
    )
    clear(a, b, keep=True)  # what an interrupted run has left
    return tell_story(parts, (a, b), lambda: clear(a, b, keep=keep))


def clear(a: Host, b: Host, *, keep: bool) -> None:
    """Remove containers, volumes and networks, and the images unless they are to be kept."""
    for host in (a, b):
        with contextlib.suppress(Failed):
            host.compose("down", "--volumes")
        complete(["ip", "netns", "delete", host.namespace])
    if not keep:
        podman("image", "rm", "--all", "--force")
        shutil.rmtree(PLACE, ignore_errors=True)


def main() -> str | None:
    """Tell the story if this host can; return the error message otherwise."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.contained", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the images for the next time")
    options = parser.parse_args()
    if os.geteuid() != 0:
        return "only root can make networks"
    if missing := [package for name, package in NEEDS.items() if not shutil.which(name)]:
        return f"missing: apt-get install --no-install-recommends {' '.join(missing)}"
    return tell(keep=options.keep)


if __name__ == "__main__":
    sys.exit(main())
