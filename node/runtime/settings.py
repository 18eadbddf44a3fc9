"""The settings of a node: defaults, environment (``PARLEY_…``), command line."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from node.model import contexts, times
from node.model.contexts import Context
from node.model.hold_limits import LIFE_MAX
from node.model.loopback import is_loopback
from node.model.named_archives import comparable_word, fault_of_word
from node.model.oidc import ALGORITHMS, fault_of_issuer
from node.model.principals import Role
from node.model.seat_weights import SeatWeights
from node.model.similar import similar_words
from node.model.targets import Network
from node.model.urls import split_url
from node.model.useragent import CONTACT
from node.model.wire.fields import Duration, Host, Name
from node.model.wire.nodes import LANES, Attributes, Lanes, NodeName, Url
from node.model.wire.participants import BATCH_MAX
from node.model.wire.tasks import PRIORITY_MAX

DEFAULT_LIMITS = Path("/etc/parley/limits.toml")
"""The usual place of the owner's limits; if there is no file, the default limits apply."""

ACCOUNT, TOOL_ACCOUNT = "parley", "parley-tool"


def default_state_dir() -> Path:
    """Return the user's directory; for root the host's, since Postgres runs as another account."""
    if os.geteuid() == 0:
        return Path("/var/lib/parley")
    return Path.home() / ".local/state/parley"


_RETENTION_MIN: Final = times.HOUR
_RETENTION_MAX: Final = 36_500 * times.DAY  # a hundred years, which is for ever


def _retention(value: object) -> object:
    """Parse a duration that may be longer than any of a task."""
    return times.parse_duration(value, _RETENTION_MAX) if isinstance(value, str) else value


def _bounded_retention(value: int) -> int:
    if not _RETENTION_MIN <= value <= _RETENTION_MAX:
        msg = f"is {times.duration_text(value)}; set 1 h to 36500 d"
        raise ValueError(msg)
    return value


Retention = Annotated[int, BeforeValidator(_retention), AfterValidator(_bounded_retention)]
"""The time for which records are kept: microseconds in memory, ISO 8601 in the environment."""


_OTHERS = frozenset(
    {
        "PARLEY_SERVER",
        "PARLEY_TOKEN",
        "PARLEY_IDENTITY",
        "PARLEY_PROFILE",
        "PARLEY_TOOL_SOCKET",
        "PARLEY_PART",
    }
)
"""Variables that are no settings of a node: those of commands, and those of our own programs."""


def unknown_settings(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence for each ``PARLEY_…`` variable that is no setting, with similar ones."""
    known = {f"PARLEY_{name.upper()}" for name in Settings.model_fields} | _OTHERS
    short = sorted(name.removeprefix("PARLEY_") for name in known)
    found = sorted(name for name in environment if name.startswith("PARLEY_") and name not in known)
    sentences = []
    for name in found:
        near = similar_words(name.removeprefix("PARLEY_"), short, most=1)
        hint = f"; did you mean PARLEY_{near[0]}?" if near else ", and has no effect"
        sentences.append(f"{name} is not a setting{hint}")
    return sentences


class Settings(BaseSettings):
    """One node's settings; every field can be set as ``PARLEY_<NAME>``."""

    model_config = SettingsConfigDict(env_prefix="PARLEY_", frozen=True, extra="forbid")

    name: NodeName = Field("localhost", description="The name of this node.")
    listen: str = Field("127.0.0.1:8642", description="HOST:PORT of the API and the page.")
    url: Url | None = Field(
        None,
        description="The URL by which other nodes reach the API; default https://LISTEN, or http "
        "on loopback.",
    )
    address: Host | None = Field(
        None, description="The address that measurements use; default LISTEN's."
    )
    dsn: str | None = Field(None, description="Postgres; by default a private server.")
    migrate: bool = Field(
        default=False, description="Migrate the database of an earlier program at the start."
    )
    state_dir: Path = Field(
        default_factory=default_state_dir, description="Key, token, private Postgres."
    )
    allow_remote: bool = Field(default=False, description="Listen beyond loopback.")
    plain_http: bool = Field(
        default=False,
        description="Serve plain HTTP to other hosts, too, where everybody on the way can read "
        "what is said.",
    )
    tls_cert: Path | None = Field(
        None,
        description="Certificate for people, with its chain (PEM); by default one that the node "
        "makes. It is read again when it changes.",
    )
    tls_key: Path | None = Field(
        None, description="Its private key (PEM), if the file of the certificate lacks it."
    )
    connections_max: int = Field(
        1000, ge=10, le=100_000, description="Maximum connections to the API at once."
    )
    connections_per_address: int = Field(
        200, ge=1, le=100_000, description="Maximum of them from one address of another host."
    )
    requests_per_minute: int = Field(
        6000,
        ge=1,
        le=1_000_000,
        description="Maximum requests of one user in a minute; owners have no limit.",
    )
    traces_endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^/\s]+/\S*$",
        description="Where traces are sent, by OTLP over HTTP: a whole URL, such as "
        "http://127.0.0.1:4318/v1/traces. Needs the extra traces.",
    )
    read_local: bool = Field(
        default=False,
        description="Whether every account and program on this host may read without a token.",
    )
    pull: bool = Field(
        default=False,
        description="No other node can reach this one: it fetches its work from those it knows.",
    )
    pull_pause_max: Duration = Field(
        times.MINUTE, ge=times.SECOND, description="Maximum pause between fruitless fetches."
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least level that is logged; ends of runs and refusals are info."
    )

    horizon: Duration = Field(times.DAY, description="How far ahead runs are booked.")
    workers: int = Field(50, ge=1, le=500, description="Planning workers of the lead.")
    batch: int = Field(BATCH_MAX, ge=1, le=BATCH_MAX, description="Maximum runs in one exchange.")
    hold_life: Duration = Field(
        30 * times.SECOND,
        le=LIFE_MAX,
        description="How long a hold lasts if the lead stays silent.",
    )
    lease: Duration = Field(30 * times.SECOND, description="How long a worker may plan a task.")
    start_margin: Duration = Field(
        1500 * times.MILLISECOND, description="Minimum time between a booking and its start."
    )
    clock_limit: Duration = Field(
        times.SECOND, description="Maximum difference between clocks of nodes that plan together."
    )
    peer_timeout: Duration = Field(
        5 * times.SECOND, description="How long another node may take to answer."
    )
    part_grace: Duration = Field(
        15 * times.SECOND, description="How long after its end a run waits for parts."
    )
    attributes: Attributes = Field(
        default_factory=dict,
        description='For predicates of pools, as JSON: {"country": "DE", "cpu_mbps": 1000}.',
    )
    lanes: Lanes = Field(
        LANES, description="This many concurrent normal runs are charged like an exclusive one."
    )
    weight_exclusive: int = Field(
        1000, ge=0, le=100_000, description="Charge of an exclusive run, thousandths of a seat."
    )
    weight_normal: int | None = Field(
        None, ge=0, le=100_000, description="Charge of a normal run; by default one lane."
    )
    weight_background: int = Field(0, ge=0, le=100_000, description="Charge of a background run.")
    urgent_percent: int = Field(
        100,
        ge=0,
        le=100,
        description="Part of all known nodes on which urgent tasks that name their participants "
        "may displace others at once, in percent; 0 lets them displace by priority only.",
    )
    urgent_delay: Duration = Field(
        10 * times.SECOND,
        ge=0,
        description="How long an urgent task waits for free time before it may displace others.",
    )
    peer_tasks: int = Field(
        1000, ge=1, le=1_000_000, description="Maximum open tasks here of one other node."
    )
    peer_introductions: int = Field(
        10,
        ge=1,
        le=10_000,
        description="Maximum new tasks of one other node per second; those of five seconds may "
        "come at once.",
    )
    peer_work: int = Field(
        50,
        ge=1,
        le=1000,
        description="Work of this host for the questions of one other node, in percent of one "
        "processor, as estimated; that of a minute may come at once. All nodes that no rule names "
        "have one and a half times that together.",
    )
    peer_ended_tasks: int = Field(
        10_000,
        ge=10,
        le=10_000_000,
        description="Maximum ended tasks of one other node that are kept, the latest ones.",
    )
    peer_ended_bytes: int = Field(
        50_000_000,
        ge=1_000_000,
        le=10**12,
        description="Maximum bytes of the ended tasks of one other node that are kept, and of all "
        "together that share a cap of the limits; of older ones the reference goes first.",
    )
    peer_priority_max: int = Field(
        1000,
        ge=-PRIORITY_MAX - 1,
        le=PRIORITY_MAX,
        description="Priority up to which tasks of other nodes count here, unless a rule of the "
        "limits says something else.",
    )
    limits: Path = Field(
        DEFAULT_LIMITS,
        description="File of what other nodes may have of this host; SIGHUP reads it again.",
    )
    lead_lease: Duration = Field(
        7 * times.DAY,
        ge=times.HOUR,
        description="How long tasks of another node stay open here when it is not heard of.",
    )
    clock_doubt: Duration = Field(
        10 * times.MINUTE,
        description="Longest time for which a clock is doubted that may be ahead and that nothing "
        "confirms; until then nothing is begun or given up.",
    )
    oidc_issuer: str | None = Field(
        None,
        description="The https URL of an OpenID Connect issuer whose tokens (JWT) users may send.",
    )
    oidc_audience: str | None = Field(
        None, description="The audience (aud) that these tokens have for this node."
    )
    oidc_roles: dict[str, Role] = Field(
        default_factory=dict,
        description='Roles by values of the claim, as JSON: {"noc": "operate", "staff": "run"}.',
    )
    oidc_role_claim: str = Field(
        "groups", description="The claim with these values; realm_access.roles for Keycloak."
    )
    oidc_label_claim: str = Field(
        "sub", description="The claim that is the label; one that users cannot choose themselves."
    )
    oidc_algorithms: str = Field(
        "RS256 ES256", description="Signature algorithms that are accepted, separated by blanks."
    )
    oidc_life_max: Duration = Field(
        times.HOUR,
        ge=times.MINUTE,
        le=times.DAY,
        description="Maximum life of these tokens, which cannot be revoked.",
    )
    keep_finished: Retention = Field(
        30 * times.DAY,
        description="How long finished runs are kept, with their results and deliveries; also the "
        "terms of pool tasks.",
    )
    keep_failed: Retention = Field(
        90 * times.DAY,
        description="How long runs are kept that have no result, each with its reason.",
    )
    keep_decisions: Retention = Field(
        30 * times.DAY, description="How long the reasons of the planning are kept."
    )
    keep_tasks: Retention = Field(
        90 * times.DAY,
        description="How long ended tasks are kept; a task stays as long as one of its runs.",
    )
    keep_exchanges: Retention = Field(
        times.DAY, description="How long exchanges without runs are kept."
    )
    keep_keys: Retention = Field(
        times.DAY, description="How long an Idempotency-Key is remembered."
    )
    keep_charges: Retention = Field(
        30 * times.DAY, description="How long the single charges of runs are kept."
    )
    keep_hours: Retention = Field(
        400 * times.DAY,
        description="How long the usage of campaigns is kept, by hours.",
    )
    keep_reserved: Retention = Field(
        30 * times.DAY, description="How long past reserved time is kept."
    )
    keep_messages: Retention = Field(
        90 * times.DAY,
        description="How long a message is sent again to a node that does not acknowledge it.",
    )
    keep_audit: Retention = Field(
        365 * times.DAY, description="How long it is kept who did what here."
    )
    keep_tokens: Retention = Field(
        90 * times.DAY, description="How long tokens are listed that are valid no longer."
    )
    backup_directory: Path | None = Field(
        None, description="Directory for backups of database and key; none are made by default."
    )
    backup_every: Retention = Field(
        times.DAY, description="How old the latest backup may get until there is another one."
    )
    backup_keep: int = Field(14, ge=1, le=10_000, description="How many backups are kept.")
    backup_with_key: bool = Field(
        default=True, description="Whether backups contain the node's private key."
    )
    archive_directories: str = Field(
        "", description="Directories for the file archiver, colon-separated; none by default."
    )
    contexts: str = Field(
        "",
        description="Contexts that others may measure from, separated by blanks: namespace:wa "
        "interface:eth1 address:192.0.2.7; append =ADDRESS if others reach one by another address "
        "than its own. All addresses of the host are allowed if none is listed.",
    )
    targets: str = Field(
        "",
        description="Networks that tasks of other nodes may measure from here although they are "
        "refused by default (loopback, link-local, this host itself, contents at private "
        "addresses), separated by blanks: 10.9.0.0/16 127.0.0.1",
    )
    contact: str = Field(
        "",
        description="An address of mail or a URL at which those who are measured can ask, told by "
        "every tool that tells targets its name (HTTP); by default PARLEY_URL, if others reach it.",
    )
    pscheduler_listen: str | None = Field(
        None,
        description="HOST:PORT where clients and nodes of pScheduler are served, over TLS; their "
        "port is 443, and `*` all addresses, IPv6 as well. Not at all by default.",
    )
    pscheduler_allow: str = Field(
        "",
        description="Networks from which they may create tasks, and see and end their own, "
        "separated by blanks: 10.9.0.0/16 192.0.2.7; none by default, not even this host.",
    )
    pscheduler_read: str = Field(
        "",
        description="Networks from which they may read the tasks, runs and schedule of all.",
    )
    pscheduler_archives: str = Field(
        "",
        description="Archives that they may name in their tasks, separated by blanks, each as a "
        "whole URL: https://archive.example/logstash tcp://192.0.2.9:5140 syslog; none by default.",
    )
    pscheduler_campaign: Name | None = Field(
        None,
        description="The campaign of tasks that they create or lead; the default one otherwise.",
    )
    owamp_listen: str | None = Field(
        None,
        description="HOST:PORT where clients of OWAMP (perfSONAR's owping, powstream) are served; "
        "their port is 861, and `*` all addresses, IPv6 as well. Not at all by default.",
    )
    owamp_allow: str = Field(
        "",
        description="Networks whose hosts may measure to and from this one by OWAMP, separated by "
        "blanks: 10.9.0.0/16 192.0.2.7; none by default, not even this host.",
    )
    owamp_ports: str = Field(
        "18760-18959",
        pattern=r"^\d{4,5}-\d{4,5}$",
        description="First and last UDP port of their sessions here.",
    )
    account: str = Field(
        ACCOUNT,
        description="Account of a node that root starts with parley up, which makes it if there "
        "is none; root to stay root.",
    )
    tool_account: str = Field(
        TOOL_ACCOUNT, description="Account of the tools of a node that is started by root."
    )
    tool_socket: Path | None = Field(
        None, description="Socket of the program that runs the tools, if systemd starts it."
    )
    tool_memory: int = Field(
        512, ge=32, le=1_048_576, description="Maximum memory of a tool (MiB)."
    )
    tool_processes: int = Field(
        64, ge=1, le=100_000, description="Maximum number of processes of a tool."
    )
    tool_file_size: int = Field(
        16, ge=1, le=1_048_576, description="Maximum size of a file that a tool writes (MiB)."
    )
    tool_disk: int = Field(
        64, ge=1, le=1_048_576, description="Maximum size of all files of a tool (MiB)."
    )
    tool_open_files: int = Field(
        256, ge=32, le=1_000_000, description="Maximum open files of a process of a tool."
    )
    port_first: int = Field(
        8760, ge=1024, le=65000, description="First port for tools; every second one is used."
    )
    port_last: int = Field(9959, ge=1024, le=65535, description="Last port for tools.")

    @field_validator("archive_directories")
    @classmethod
    def _absolute_paths(cls, value: str) -> str:
        if not all(Path(part).is_absolute() for part in value.split(":") if part):
            msg = "must be absolute paths, such as /var/lib/parley/results:/srv/results"
            raise ValueError(msg)
        return value

    @field_validator("backup_directory")
    @classmethod
    def _absolute_path(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            msg = "must be an absolute path, such as /var/backups/parley"
            raise ValueError(msg)
        return value

    @field_validator("listen", "pscheduler_listen", "owamp_listen")
    @classmethod
    def _check_host_and_port(cls, value: str | None) -> str | None:
        if value is None:
            return None
        host, _, port = value.rpartition(":")
        split = split_url(f"//{host}:1")
        if split is None or not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 - the largest
            msg = "must be HOST:PORT, such as 127.0.0.1:8642"
            raise ValueError(msg)
        return value

    @field_validator("contexts")
    @classmethod
    def _check_contexts(cls, value: str) -> str:
        if len(_parse_contexts(value)) > contexts.CONTEXTS_MAX:
            msg = f"has more than {contexts.CONTEXTS_MAX} contexts; leave some out"
            raise ValueError(msg)
        return value

    @field_validator("owamp_ports")
    @classmethod
    def _check_ports(cls, value: str) -> str:
        ports = _parse_ports(value)
        if not ports or ports.start < 1024 or ports.stop > 65536:  # noqa: PLR2004 - ports of users
            msg = "must be two ports from 1024 to 65535, such as 18760-18959"
            raise ValueError(msg)
        return value

    @field_validator("targets", "pscheduler_allow", "pscheduler_read", "owamp_allow")
    @classmethod
    def _check_networks(cls, value: str) -> str:
        for word in value.split():
            try:
                ipaddress.ip_network(word)
            except ValueError as fault:
                msg = f"{fault}; write networks such as 10.9.0.0/16 or 127.0.0.1"
                raise ValueError(msg) from None
        return value

    @field_validator("pscheduler_archives")
    @classmethod
    def _check_archives(cls, value: str) -> str:
        for word in value.split():
            if (fault := fault_of_word(word)) is not None:
                msg = f"{word}: {fault}"
                raise ValueError(msg)
        return value

    @field_validator("contact")
    @classmethod
    def _check_contact(cls, value: str) -> str:
        if value and CONTACT.fullmatch(value) is None:
            msg = (
                "is told to targets within a header, so it has at most 200 letters, digits and "
                "signs without blanks, quotes and parentheses: noc@example.org or a URL"
            )
            raise ValueError(msg)
        return value

    @field_validator("oidc_issuer")
    @classmethod
    def _check_issuer(cls, value: str | None) -> str | None:
        if value is not None and (fault := fault_of_issuer(value)) is not None:
            msg = f"{fault}; write it as the tokens have it (iss)"
            raise ValueError(msg)
        return value

    @field_validator("oidc_algorithms")
    @classmethod
    def _check_algorithms(cls, value: str) -> str:
        if not value.split() or not set(value.split()) <= set(ALGORITHMS):
            msg = f"must be some of {' '.join(ALGORITHMS)}"
            raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _check_issuer_settings(self) -> Self:
        if self.oidc_issuer is not None and not (self.oidc_audience and self.oidc_roles):
            msg = "oidc_issuer needs oidc_audience and oidc_roles; set all three"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _check_reachability(self) -> Self:
        if self.pull and self.url is not None:
            msg = "a node that fetches its work (pull) has no URL; set pull or url, not both"
            raise ValueError(msg)
        if self.listen_port == 0 and self.url is None:
            msg = (
                f"listen = {self.listen} is any free port, another one at each start, and nobody "
                "could be told which: name a port, or set url to where the node is reached"
            )
            raise ValueError(msg)
        if self.tls_key is not None and self.tls_cert is None:
            msg = "there is a tls_key without a tls_cert; set both"
            raise ValueError(msg)
        return self

    @property
    def archive_places(self) -> tuple[Path, ...]:
        """The directories that archivers may write to."""
        return tuple(Path(part) for part in self.archive_directories.split(":") if part)

    @property
    def seat_weights(self) -> SeatWeights:
        """The part of a node that runs take, by class."""
        return SeatWeights(self.weight_exclusive, self.weight_normal, self.weight_background)

    @property
    def allowed_contexts(self) -> dict[Context, str | None]:
        """``contexts``, each with its configured address; None if it has none."""
        return _parse_contexts(self.contexts)

    @property
    def allowed_targets(self) -> tuple[Network, ...]:
        """``targets`` as networks."""
        return _parse_networks(self.targets)

    @property
    def shown_contact(self) -> str | None:
        """The contact that targets are told; None if there is nothing that would help them."""
        url = None if self.pull else self.public_url
        split = split_url(url or "")
        host = "" if split is None else split.hostname or ""
        return self.contact or (url if host and not is_loopback(host) else None)

    @property
    def pscheduler_address(self) -> tuple[str | None, int] | None:
        """Host and port of ``pscheduler_listen``, a host of None is all; None if it is not set."""
        return _parse_listen(self.pscheduler_listen)

    @property
    def owamp_address(self) -> tuple[str | None, int] | None:
        """Host and port of ``owamp_listen``, a host of None is all; None if it is not set."""
        return _parse_listen(self.owamp_listen)

    @property
    def owamp_clients(self) -> tuple[Network, ...]:
        """``owamp_allow`` as networks."""
        return _parse_networks(self.owamp_allow)

    @property
    def owamp_session_ports(self) -> range:
        """``owamp_ports`` as numbers."""
        return _parse_ports(self.owamp_ports)

    @property
    def pscheduler_writers(self) -> tuple[Network, ...]:
        """``pscheduler_allow`` as networks."""
        return _parse_networks(self.pscheduler_allow)

    @property
    def pscheduler_readers(self) -> tuple[Network, ...]:
        """``pscheduler_read`` as networks."""
        return _parse_networks(self.pscheduler_read)

    @property
    def named_archives(self) -> frozenset[str]:
        """The words of ``pscheduler_archives``."""
        return frozenset(map(comparable_word, self.pscheduler_archives.split()))

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
        """The URL for people, and for other nodes unless this node fetches its work."""
        plain = self.plain_http or is_loopback(self.listen_host)
        return (self.url or f"{'http' if plain else 'https'}://{self.listen}").rstrip("/")

    @property
    def plain_warning(self) -> str | None:
        """The sentence on what others may read on the way; None if nothing goes by plain HTTP."""
        if not self.plain_http or is_loopback(self.listen_host):
            return None
        return (
            "plain HTTP is served to other hosts (plain_http): whoever is on the way can read "
            "tokens and results"
        )

    @property
    def local_url(self) -> str:
        """The URL by which this host itself reaches the API, bypassing any proxy."""
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - a listening address
        host = everywhere.get(self.listen_host, self.listen_host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.listen_port}"

    @property
    def tool_ports(self) -> range:
        """The ports of tools."""
        return range(self.port_first, self.port_last + 1)

    @property
    def measurement_address(self) -> str:
        """The address that measurements to and from this node use."""
        return self.address or self.listen_host


def _parse_listen(value: str | None) -> tuple[str | None, int] | None:
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    return None if host == "*" else host.strip("[]"), int(port)


def _parse_ports(value: str) -> range:
    first, _, last = value.partition("-")
    return range(int(first), int(last) + 1)


def _parse_networks(value: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(word) for word in value.split())


def _parse_contexts(value: str) -> dict[Context, str | None]:
    """Parse the contexts in a setting.

    :raises ValueError: one of them is not a context.
    """
    allowed: dict[Context, str | None] = {}
    for entry in value.split():
        word, equals, address = entry.partition("=")
        configured = str(ipaddress.ip_address(address)) if equals else None
        allowed[contexts.parse(word)] = configured
    return allowed
