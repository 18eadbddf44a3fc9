"""Hosts for containers: a network of its own, and what compose runs in it.

Podman keeps images, volumes and containers of these hosts in ``build/contained``, apart from those
of the host that runs this.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from deploy.package import REPOSITORY
from tests.support.steps import complete, output, run

PLACE = REPOSITORY / "build" / "contained"
CONTAINER = REPOSITORY / "deploy" / "container"
COMPOSE = REPOSITORY / "build/release/bin/podman-compose"


def environment() -> dict[str, str]:
    """Return the environment in which podman uses the storage of these hosts."""
    PLACE.mkdir(parents=True, exist_ok=True)
    file = PLACE / "storage.conf"
    places = f'graphroot = "{PLACE}/storage"\nrunroot = "/run/parley-contained"\n'
    file.write_text(f'[storage]\ndriver = "overlay"\n{places}')
    return {**os.environ, "CONTAINERS_STORAGE_CONF": str(file)}


def podman(*argv: str, given: str = "") -> str:
    """Run podman; return its output.

    :raises Failed: it failed.
    """
    ended = complete(["podman", *argv], given=given, environment=environment())
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
        """What the names of its containers and volumes begin with."""
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

    def type(self, line: str, service: str = "node") -> str:
        """Type a line in a container, as its account; return what it prints.

        :raises Failed: the command fails.
        """
        return podman("exec", self.container(service), "sh", "-c", line)

    def try_(self, line: str, service: str = "node") -> bool:
        """Type a line in a container; return whether it succeeds."""
        argv = ["podman", "exec", self.container(service), "sh", "-c", line]
        return not complete(argv, environment=environment()).returncode

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
