"""What a node's owner can set: these defaults, environment (``PARLEY_…``), command line."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from node.model import contexts, times
from node.model.contexts import Context
from node.model.wire.fields import Duration
from node.model.wire.nodes import LANES, Attributes, Lanes, NodeName, Url
from node.model.wire.participants import BATCH_MAX


def default_state_dir() -> Path:
    """A user's own, or for root the host's: Postgres does not run as root and must get there."""
    if os.geteuid() == 0:
        return Path("/var/lib/parley")
    return Path.home() / ".local/state/parley"


class Settings(BaseSettings):
    """One node's settings; every field can be given as ``PARLEY_<NAME>``."""

    model_config = SettingsConfigDict(env_prefix="PARLEY_", frozen=True, extra="forbid")

    name: NodeName = Field("localhost", description="What this node calls itself.")
    listen: str = Field("127.0.0.1:8642", description="HOST:PORT of the API and the page.")
    url: Url | None = Field(
        None, description="How other nodes reach the API; http://LISTEN unless said."
    )
    address: str | None = Field(
        None, description="The address measurements use; LISTEN's unless said."
    )
    dsn: str | None = Field(None, description="Postgres; a private one is made unless said.")
    state_dir: Path = Field(
        default_factory=default_state_dir, description="Key, token, private Postgres."
    )
    allow_remote: bool = Field(default=False, description="Listen beyond loopback.")
    pull: bool = Field(
        default=False,
        description="No other node reaches this one: it fetches its work from those it knows.",
    )
    pull_pause_max: Duration = Field(
        times.MINUTE, ge=times.SECOND, description="Longest pause before it asks again in vain."
    )

    horizon: Duration = Field(times.DAY, description="How far ahead runs are booked.")
    workers: int = Field(50, ge=1, le=500, description="Planning workers of the lead.")
    batch: int = Field(BATCH_MAX, ge=1, le=BATCH_MAX, description="Most runs in one exchange.")
    hold_life: Duration = Field(
        30 * times.SECOND, description="Life of a hold without a word of the lead."
    )
    lease: Duration = Field(30 * times.SECOND, description="How long a worker may plan a task.")
    start_margin: Duration = Field(
        1500 * times.MILLISECOND, description="Nothing is booked or displaced closer than this."
    )
    clock_limit: Duration = Field(
        times.SECOND, description="Clocks further apart than this do not plan together."
    )
    peer_timeout: Duration = Field(
        5 * times.SECOND, description="How long another node may take to answer."
    )
    part_grace: Duration = Field(
        15 * times.SECOND, description="How long after its end a run waits for parts."
    )
    attributes: Attributes = Field(
        default_factory=dict,
        description='What pools may ask for, as JSON: {"country": "DE", "cpu_mbps": 1000}.',
    )
    lanes: Lanes = Field(
        LANES, description="So many normal runs side by side are charged like an exclusive one."
    )
    weight_exclusive: int = Field(
        1000, ge=0, le=100_000, description="Charge of an exclusive run, thousandths of a seat."
    )
    weight_normal: int | None = Field(
        None, ge=0, le=100_000, description="The same of a normal run; a lane unless said."
    )
    weight_background: int = Field(0, ge=0, le=100_000, description="The same of a background run.")
    archive_directories: str = Field(
        "", description="Where the file archiver may write, colon-separated; nowhere unless said."
    )
    contexts: str = Field(
        "",
        description="From where else others may have their parts measured here, apart by blanks: "
        "namespace:wa interface:eth1 address:192.0.2.7, each with =ADDRESS where others reach it "
        "by another one than its own.",
    )
    port_first: int = Field(
        8760, ge=1024, le=65000, description="First port given out to tools; every other one is."
    )
    port_last: int = Field(9959, ge=1024, le=65535, description="Last port given out to tools.")

    @field_validator("archive_directories")
    @classmethod
    def _whole_paths(cls, value: str) -> str:
        if not all(Path(part).is_absolute() for part in value.split(":") if part):
            msg = "must be whole paths, such as /var/lib/parley/results:/srv/results"
            raise ValueError(msg)
        return value

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 - the largest port
            msg = "must be HOST:PORT, such as 127.0.0.1:8642"
            raise ValueError(msg)
        return value

    @field_validator("contexts")
    @classmethod
    def _are_contexts(cls, value: str) -> str:
        if len(_allowed(value)) > contexts.CONTEXTS_MAX:
            msg = f"are more than {contexts.CONTEXTS_MAX}"
            raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _is_reached_or_not(self) -> Self:
        if self.pull and self.url is not None:
            msg = "a node that fetches its work (pull) has no URL; give one or the other"
            raise ValueError(msg)
        return self

    @property
    def archive_places(self) -> tuple[Path, ...]:
        """The directories in which archivers may write."""
        return tuple(Path(part) for part in self.archive_directories.split(":") if part)

    @property
    def allowed_contexts(self) -> dict[Context, str | None]:
        """``contexts``, each with the address that is given for it."""
        return _allowed(self.contexts)

    @property
    def listen_host(self) -> str:
        """The host part of ``listen``, without brackets."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def listen_port(self) -> int:
        """The port part of ``listen``."""
        return int(self.listen.rpartition(":")[2])

    @property
    def public_url(self) -> str:
        """Where people reach this node, and other nodes unless it fetches its work."""
        return (self.url or f"http://{self.listen}").rstrip("/")

    @property
    def local_url(self) -> str:
        """Where this host itself reaches the API, whatever lies before it."""
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what is listened on
        host = everywhere.get(self.listen_host, self.listen_host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.listen_port}"

    @property
    def measurement_address(self) -> str:
        """The address that measurements to and from this node use."""
        return self.address or self.listen_host


def _allowed(value: str) -> dict[Context, str | None]:
    """The contexts in a setting.

    :raises ValueError: one of them is none.
    """
    allowed: dict[Context, str | None] = {}
    for written in value.split():
        word, equals, address = written.partition("=")
        given = str(ipaddress.ip_address(address)) if equals else None
        allowed[contexts.parse(word)] = given
    return allowed
