"""Hosts for containers: a network of its own, and what compose runs in it.

Podman keeps images, volumes and containers of these hosts in ``build/contained``, apart from those
of the host that runs this.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass

from deploy.package import REPOSITORY
from tests.support.steps import Failed, complete, output, run

PLACE = REPOSITORY / "build" / "contained"
CONTAINER = REPOSITORY / "deploy" / "container"
_LIMIT = 16384
COMPOSE = REPOSITORY / "build/release/bin/podman-compose"


def environment() -> dict[str, str]:
    """Return the environment in which podman uses the storage of these hosts.

    Containers get limits that every root may set: in a container of its own it may not raise any.
    """
    PLACE.mkdir(parents=True, exist_ok=True)
    storage, containers = PLACE / "storage.conf", PLACE / "containers.conf"
    places = f'graphroot = "{PLACE}/storage"\nrunroot = "/run/parley-contained"\n'
    storage.write_text(f'[storage]\ndriver = "overlay"\n{places}')
    limits = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    low = {name: min(_LIMIT, resource.getrlimit(limit)[1]) for name, limit in limits.items()}
    lines = ", ".join(f'"{name}={value}:{value}"' for name, value in low.items())
    containers.write_text(f"[containers]\ndefault_ulimits = [{lines}]\n")
    return {
        **os.environ,
        "CONTAINERS_STORAGE_CONF": str(storage),
        "CONTAINERS_CONF": str(containers),
    }


def podman(*argv: str, given: str = "", within: Sequence[str] = ()) -> str:
    """Run podman, in a network if one is given; return its output.

    A program joins a container in the network where podman is, if the container has the host's.

    :raises Failed: it failed.
    """
    ended = complete([*within, "podman", *argv], given=given, environment=environment())
    return output(ended, f"podman {' '.join(argv)}")


@dataclass
class Host:
    """One host: its network, and the containers of its node."""

    name: str
    address: str
    version: str
    """The version of its images."""

    @property
    def namespace(self) -> str:
        """Its network."""
        return f"parley-contained-{self.name}"

    @property
    def project(self) -> str:
        """The beginning of the names of its containers and volumes."""
        return f"parley-{self.name}"

    def write_settings(self) -> None:
        """Write the settings of its node, as its owner would."""
        lines = (CONTAINER / "parley.env").read_text()
        lines = lines.replace("https://a.example", f"https://{self.address}")
        lines = lines.replace("192.0.2.1", self.address).replace("a.example", self.name)
        (PLACE / f"{self.name}.env").write_text(lines)

    def compose(self, *argv: str) -> str:
        """Run compose in its network; return its output.

        :raises Failed: it failed.
        """
        settings = {
            **environment(),
            "PARLEY_SETTINGS": str(PLACE / f"{self.name}.env"),
            "PARLEY_VERSION": self.version,
        }
        file = ("--file", str(CONTAINER / "compose.yml"), "--project-name", self.project)
        return run(*self._within(), COMPOSE, *file, *argv, environment=settings)

    def _within(self) -> tuple[str, ...]:
        return ("nsenter", f"--net=/run/netns/{self.namespace}")

    def network(self, *argv: str) -> str:
        """Run a program of this host in its network; return its output.

        :raises Failed: it failed.
        """
        return run(*self._within(), *argv)

    def container(self, service: str) -> str:
        """Return the name of the container of a service."""
        return f"{self.project}_{service}_1"

    def inspect(self, service: str, what: str) -> str:
        """Return what podman knows of the container of a service."""
        return podman("inspect", "--format", what, self.container(service)).strip()

    def check_health(self, service: str) -> None:
        """Check the health of a service.

        :raises Failed: it is not healthy.
        """
        podman("healthcheck", "run", self.container(service), within=self._within())

    def type(self, line: str, service: str = "node") -> str:
        """Type a line in a container, as its account; return what it prints.

        :raises Failed: the command fails.
        """
        return podman("exec", self.container(service), "sh", "-c", line, within=self._within())

    def try_(self, line: str, service: str = "node") -> bool:
        """Type a line in a container; return whether it succeeds."""
        with contextlib.suppress(Failed):
            self.type(line, service)
            return True
        return False

    def ask(self, statement: str, database: str = "parley") -> str:
        """Return what its Postgres answers."""
        argv = ("exec", "--interactive", self.container("database"), "psql", "-XAtq", database)
        return podman(*argv, given=statement).strip()

    def volumes(self) -> list[str]:
        """Return the names of its volumes."""
        names = podman("volume", "ls", "--format", "{{.Name}}").split()
        return [it for it in names if it.startswith(self.project)]

    def show_log(self) -> None:
        """Print the end of what its services said."""
        for service in ("database", "tools", "node", "lead"):
            argv = ["podman", "logs", "--tail", "20", self.container(service)]
            ended = complete(argv, environment=environment())
            print(f"--- {self.name}: {service}\n{ended.stdout}{ended.stderr}")
