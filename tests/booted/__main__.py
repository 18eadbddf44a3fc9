"""``make booted``: the Debian package on two machines with a booted systemd, from install to purge.

Two bare Debian roots are booted in systemd-nspawn and joined by a cable; each step types what the
documentation says and checks what is promised. It needs root, debootstrap, and systemd-container,
and about five minutes. ``--keep`` leaves the machines' files for a look.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from deploy.package import REPOSITORY
from deploy.released import RELEASED
from tests.booted.machine import Machine, lay_cable, leave, make_root
from tests.support.documented_commands import blocks
from tests.support.pscheduler.template import template_of
from tests.support.steps import require, run, step, tell_story, wait_until

PLACE = REPOSITORY / "build" / "booted"
COMMANDS_MAX = 6
BACKUPS = "/var/backups/parley"
SERVICES = ("parley-node", "parley-lead", "parley-tools.socket", "parley-database")
FIREWALL = """\
#!/usr/sbin/nft -f
flush ruleset
table inet filter {
    chain input {
        type filter hook input priority 0;
        ct state established,related accept
        iifname "lo" accept
        meta l4proto icmp accept
        reject
    }
}
"""
"""A firewall that refuses the rest by its last rule, as many hosts have one before Parley comes."""


class Story:
    """Both machines, and what one step leaves for the next."""

    def __init__(self, a: Machine, b: Machine, package: Path, earlier: Path) -> None:
        """Tell it with this package, and that of the last release."""
        self.a, self.b, self.package, self.earlier = a, b, package, earlier
        self.identity = ""

    def boot(self) -> None:
        """Two bare machines boot."""
        lay_cable(self.a, self.b)
        for machine in (self.a, self.b):
            machine.boot()
            names = f"{self.a.address} {self.a.name}\\n{self.b.address} {self.b.name}"
            machine.type(f"printf '127.0.0.1 localhost\\n{names}\\n' > /etc/hosts")
            (machine.root / "etc/nftables.conf").write_text(FIREWALL)
            machine.type("systemctl enable --quiet --now nftables")

    def install(self) -> None:
        """Installing asks nothing; the node serves, with its own role, database, and name."""
        install(self.a, self.package)
        wait_until(lambda: serves(self.a), "/healthz answers")
        for service in SERVICES:
            self.a.type(f"systemctl is-active {service}")
        self.identity = identity(self.a)
        self.a.type("test -s /usr/share/man/man1/parley-task-list.1.gz")
        self.a.type("test -s /usr/share/bash-completion/completions/parley")
        require(self.a.name in self.a.type("parley node list"), "the node has the host's name")

    def back_up_by_itself(self) -> None:
        """The node backs itself up, with nobody asking for it."""
        file = f"{BACKUPS}/*.parley"
        wait_until(lambda: self.a.try_(f"test -s {file}"), "there is a backup")

    def measure(self) -> None:
        """A measurement of this host alone works."""
        self.a.type("parley rtt 127.0.0.1 --count 3")
        self.a.type("parley task create rtt --spec dest=127.0.0.1 --repeat 20s")

    def api(self) -> None:
        """A further process of the API takes a task, which the node measures."""
        self.a.type("systemctl start parley-api@8643")
        ready = "curl -fsS http://127.0.0.1:8643/readyz"
        wait_until(lambda: self.a.try_(ready), "/readyz of the further process answers")
        self.a.type("PARLEY_SERVER=http://127.0.0.1:8643 parley rtt 127.0.0.1 --count 3")
        self.a.type("systemctl stop parley-api@8643")

    def hang(self) -> None:
        """A node that hangs is killed by systemd's watchdog and comes back."""
        before = main_pid(self.a)
        self.a.type(f"kill -STOP {before}")
        wait_until(lambda: main_pid(self.a) not in {before, "0"}, "the watchdog restarts the node")
        wait_until(lambda: serves(self.a), "/healthz answers")
        require(
            "watchdog" in self.a.type("journalctl --unit=parley-node --no-pager").lower(),
            "the log says why",
        )

    def kill(self) -> None:
        """Services that are killed come back."""
        for service in ("parley-node", "parley-lead", "parley-tools"):
            self.a.type(f"systemctl kill --signal=KILL {service} || true")
        wait_until(lambda: serves(self.a), "/healthz answers")
        wait_until(lambda: self.a.try_("curl -fsS http://127.0.0.1:8642/readyz"), "/readyz answers")
        self.a.type("parley rtt 127.0.0.1 --count 3")

    def reboot(self) -> None:
        """After a reboot the services are back, with their tasks."""
        self._end_and_boot(self.a.shut_down)
        finished = finished_runs(self.a)
        wait_until(lambda: finished_runs(self.a) > finished, "a run after the reboot finishes")

    def pull_the_plug(self) -> None:
        """After a loss of power, too."""
        self._end_and_boot(self.a.kill)

    def _end_and_boot(self, end: Callable[[], None]) -> None:
        """End the first machine and boot it again; its firewall stays, with its network."""
        tasks = task_ids(self.a)
        end()
        self.a.boot()
        wait_until(lambda: serves(self.a), "/healthz answers")
        require(task_ids(self.a) == tasks, "the tasks are there")

    def upgrade(self) -> None:
        """An upgrade from the last release keeps tasks and runs: it makes a backup and migrates."""
        install(self.b, self.earlier)
        wait_until(lambda: serves(self.b), "/healthz answers")
        self.b.type("parley task create rtt --spec dest=127.0.0.1 --spec count=2 --repeat 10s")
        wait_until(lambda: finished_runs(self.b) > 1, "two runs of the release finish")
        own, tasks, before = identity(self.b), task_ids(self.b), finished_runs(self.b)
        install(self.b, self.package)
        wait_until(lambda: serves(self.b), "/healthz answers")
        require(identity(self.b) == own, "the node has the same key")
        require(task_ids(self.b) == tasks, "the tasks are there")
        require(finished_runs(self.b) >= before, "the runs are there")
        require("nothing to do" in self.b.type("parley admin migrate --output table"), "migrated")
        self.b.type(f"ls {BACKUPS}/*.parley")
        wait_until(lambda: finished_runs(self.b) > before, "a run after the upgrade finishes")

    def back_up_and_restore(self) -> None:
        """A backup of one machine, restored on another, is the same node."""
        self.a.type(f"parley admin backup --to {BACKUPS} --keep 1")
        [backup] = (self.a.root / "var/backups/parley").glob("*.parley")
        self.a.type("systemctl disable --now --quiet parley-lead parley-node")
        shutil.copy2(backup, self.b.root / "root/a.parley")
        (self.b.root / "root/a.parley").chmod(0o600)
        self.b.type("systemctl stop parley-lead parley-node")
        require(
            not self.b.try_("parley admin restore /root/a.parley"), "nothing is replaced untold"
        )
        self.b.type("parley admin restore --replace /root/a.parley")
        self.b.type("systemctl start parley-node parley-lead")
        wait_until(lambda: serves(self.b), "/healthz answers")
        require(identity(self.b) == self.identity, "it is the same node")
        finished = finished_runs(self.b)
        wait_until(lambda: finished_runs(self.b) > finished, "the tasks of the backup go on")

    def lose_the_key(self) -> None:
        """A node whose key is lost says what to do, and a backup brings the key back."""
        self.b.type("systemctl stop parley-lead parley-node && rm /var/lib/parley/node.pem")
        self.b.type("systemctl start parley-node || true")
        log = "journalctl --no-pager --unit=parley-node --lines=5"
        wait_until(
            lambda: "restore a backup with the key" in self.b.type(log), "it says what to do"
        )
        self.b.type("systemctl stop parley-node")
        self.b.type("parley admin restore --replace /root/a.parley")
        self.b.type("systemctl start parley-node parley-lead")
        wait_until(lambda: serves(self.b), "/healthz answers")
        require(identity(self.b) == self.identity, "it is the same node")

    def remove(self) -> None:
        """Removing keeps key and data, which another installation finds; purging leaves nothing."""
        self.b.type("DEBIAN_FRONTEND=noninteractive apt-get remove --yes -qq parley")
        require(not self.b.try_("systemctl is-active parley-node"), "the service is stopped")
        self.b.type("test -s /var/lib/parley/node.pem && test ! -e /opt/parley")
        install(self.b, self.package)
        wait_until(lambda: serves(self.b), "/healthz answers")
        require(identity(self.b) == self.identity, "it is the same node")
        self.b.type("DEBIAN_FRONTEND=noninteractive apt-get purge --yes -qq parley")
        left = self.b.type(f"ls -d {PLACES} 2> /dev/null; getent passwd parley parley-tool; true")
        left += query(
            self.b,
            OURS,
            "postgres",
        )
        require(not left.strip(), f"nothing is left, such as {left}")

    def purge_beside_a_stopped_database(self) -> None:
        """A purge starts a stopped Postgres; where that fails it removes nothing, and says so."""
        install(self.b, self.package)
        wait_until(lambda: serves(self.b), "/healthz answers")
        purge = "DEBIAN_FRONTEND=noninteractive apt-get purge --yes -qq parley"
        stop = "systemctl stop parley-lead parley-node postgresql"
        self.b.type(f"{stop} && systemctl mask --quiet postgresql postgresql@15-main")
        require(not self.b.try_(purge), "no key is removed whose database stays")
        self.b.type("test -s /var/lib/parley/node.pem")
        self.b.type("systemctl unmask --quiet postgresql postgresql@15-main")
        self.b.type(purge)
        require(
            not self.b.try_("systemctl is-active postgresql@15-main"), "it is stopped as before"
        )
        self.b.type("systemctl start postgresql && test ! -e /var/lib/parley")
        require(not query(self.b, OURS, "postgres"), "neither role nor database is left")

    def find_the_database_of_another(self) -> None:
        """An installation beside a database without its key starts nothing, and says what to do."""
        install(self.b, self.package)
        wait_until(lambda: serves(self.b), "/healthz answers")
        self.b.type("apt-get remove --yes -qq parley && rm /var/lib/parley/node.pem")
        shutil.copy2(self.package, self.b.root / "root/parley.deb")
        require(not self.b.try_(f"{APT} /root/parley.deb < /dev/null"), "it is not installed")
        require(not self.b.try_("systemctl is-active parley-node"), "nothing is started")
        [drop] = re.findall(
            r"To be a new node.*?: (.+)", self.b.type("dpkg --configure parley 2>&1 || true")
        )
        self.b.type(f"{drop} && dpkg --configure parley")
        wait_until(lambda: serves(self.b), "/healthz answers")
        self.b.type("DEBIAN_FRONTEND=noninteractive apt-get purge --yes -qq parley")

    def introduce(self) -> None:
        """Two new hosts measure each other by the lines of the documentation, counted here."""
        self.a.type("apt-get purge --yes -qq parley")
        typed = {self.a.name: 0, self.b.name: 0}

        def type_(machine: Machine, line: str) -> str:
            typed[machine.name] += 1
            return machine.type(line)

        for machine in (self.a, self.b):
            typed[machine.name] += 1
            install(machine, self.package)
            type_(machine, lines_of_the_firewall())
        keys = {machine.name: "" for machine in (self.a, self.b)}
        for machine in (self.a, self.b):
            wait_until(lambda it=machine: serves(it), "/healthz answers")  # type: ignore[misc]
            typed[machine.name] += 1  # parley node show, whose key each reads out to the other
            keys[machine.name] = identity(machine)
        for machine, other in ((self.a, self.b), (self.b, self.a)):
            *_, add, _ = commands_of_the_table()
            add = add.replace("b.example", other.address)
            type_(machine, add.replace("ed25519:…", keys[other.name]))
        measure = commands_of_the_table()[-1].replace("a.example", self.a.name)
        type_(self.a, measure.replace("b.example", self.b.name))
        self.a.shut_down()
        self.a.boot()
        wait_until(lambda: self.b.try_(f"curl -fsk https://{self.a.address}:8642/healthz"), "open")
        require(max(typed.values()) <= COMMANDS_MAX, f"few commands: {typed}")
        print(f"      commands typed: {typed}")

    def move(self) -> None:
        """A host of pScheduler becomes a node, and goes back, by the lines of the page about it."""
        stop, serve, follow, back = steps_of_moving()
        self.a.type("DEBIAN_FRONTEND=noninteractive apt-get purge --yes -qq parley")
        self.a.type("echo 'APT::Get::Assume-Yes true;' > /etc/apt/apt.conf.d/90yes")
        services = shlex.split(stop.splitlines()[0])[3:]
        all_services = " ".join(services)
        for service in services:
            self.a.type(f"printf '{OLD_SERVICE}' > /etc/systemd/system/{service}.service")
        self.a.type(f"systemctl daemon-reload && systemctl enable --quiet --now {all_services}")
        shutil.copy2(self.package, self.a.root / "root")
        self.a.type(
            "nft insert rule inet filter input tcp dport 443 accept"
        )  # as the old host had it
        self.a.type(f"set -e; export DEBIAN_FRONTEND=noninteractive\n{stop}")
        # The lab's addresses are private, which neither clients nor a template may have measured.
        self.a.type(f"echo PARLEY_TARGETS={self.b.address} >> /etc/parley/parley.env")
        require(not self.a.try_(f"systemctl is-active {all_services}"), "its services are stopped")
        wait_until(lambda: serves(self.a), "/healthz answers")
        # Within nspawn nobody writes to /proc/sys, so this line is typed outside, in its network.
        before, load, after = serve.replace("192.0.2.0/24", f"{self.b.address}/32").partition(LOAD)
        self.a.type(f"set -e\n{before}")
        file = f"{self.a.root}{load.split()[-1]}"
        run("ip", "netns", "exec", self.a.namespace, "sysctl", "--load", file)
        self.a.type(f"set -e\n{after}")
        base = f"https://{self.a.address}/pscheduler"
        wait_until(lambda: self.b.try_(f"curl -fsk {base}/"), "it answers other hosts as before")
        ping = {"test": {"type": "rtt", "spec": {"dest": self.b.address}}, "schedule": {}}
        words = f"-H 'Content-Type: application/json' -d '{json.dumps(ping)}' {base}/tasks"
        post = f"curl -fsk {words}"
        task = json.loads(self.b.type(post))
        first = f"curl -fsk '{task}/runs/first?wait-merged=1'"
        wait_until(
            lambda: '"finished"' in self.b.type(f"{first} || true"), "a run that it posts finishes"
        )
        template = json.dumps(template_of("east", self.b.address))
        self.a.type(f"mkdir -p /srv/config && echo '{template}' > /srv/config/psconfig.json")
        self.a.type(f"systemd-run --quiet {PYTHON} -m http.server 8000 --directory /srv/config")
        published = "http://127.0.0.1:8000/psconfig.json"
        wait_until(lambda: self.a.try_(f"curl -fs {published}"), "the template is published")
        self.a.type("set -e\n" + follow.replace("https://config.example/psconfig.json", published))
        self.a.type("systemctl is-active parley-follow")
        require("pings" in self.a.type("parley task list --output json"), "it follows the template")
        self.a.type(f"{back} && systemctl enable --quiet --now {all_services}")
        require(not self.b.try_(f"curl -fsk {base}/"), "the node is gone")


OURS = (
    "SELECT datname FROM pg_database WHERE datname ~ 'parley' "
    "UNION SELECT rolname FROM pg_roles WHERE rolname ~ 'parley'"
)
"""The query of what the package has made in a Postgres."""
REAL_HOST = REPOSITORY / "docs" / "how-to" / "real-host.md"
MOVING = REPOSITORY / "docs" / "how-to" / "moving.md"
LOAD = "sysctl --load /etc/sysctl.d/60-parley.conf"
OLD_SERVICE = r"[Service]\nExecStart=sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
"""A service of the old host, of which it matters only that it runs."""
PYTHON = "/opt/parley/bin/python"
PLACES = "/opt/parley /etc/parley /var/lib/parley /var/backups/parley /lib/systemd/system/parley*"
"""The places of the package's and the node's files."""
APT = "apt-get install --yes -qq --allow-downgrades"


def steps_of_moving() -> tuple[str, str, str, str]:
    """Return what root types to stop the old host, to serve, to follow its template, to go back."""
    stop, serve, follow, _ = (block.text for block in blocks(MOVING) if block.language == "sh")
    [back] = re.findall(r"To go back: `([^`]+)`", MOVING.read_text("utf-8"))
    return stop, serve, follow, back


def commands_of_the_table() -> list[str]:
    """Return what the table of the installation has people type on the first host, in its order."""
    rows = re.findall(r"^\| \d \| (.+?) \|", REAL_HOST.read_text("utf-8"), re.MULTILINE)
    return [command for row in rows for command in re.findall(r"^`([^`]+)`", row)]


def lines_of_the_firewall() -> str:
    """Return the lines that open the firewall, as the same page has them."""
    [lines] = [it.text for it in blocks(REAL_HOST) if "nft list chain" in it.text]
    return lines


def install(machine: Machine, package: Path) -> None:
    """Install a package as an administrator would, with nobody to answer a question."""
    shutil.copy2(package, machine.root / "root/parley.deb")
    machine.type(f"{APT} /root/parley.deb < /dev/null")


def serves(machine: Machine) -> bool:
    """Return whether the node of a machine answers."""
    return machine.try_("curl -fsS http://127.0.0.1:8642/healthz")


def identity(machine: Machine) -> str:
    """Return the key of the node of a machine."""
    return machine.type(
        "parley node show --output json | grep -o 'ed25519:[^\"]*' | head -1"
    ).strip()


def main_pid(machine: Machine) -> str:
    """Return the process of the node of a machine; 0 if there is none."""
    return machine.type("systemctl show --property=MainPID --value parley-node").strip()


def task_ids(machine: Machine) -> list[str]:
    """Return the tasks of the node of a machine."""
    return sorted(machine.type("parley task list --output ids").split())


def finished_runs(machine: Machine) -> int:
    """Return how many runs have finished on a machine."""
    return int(query(machine, "SELECT count(*) FROM run WHERE state = 'finished'"))


def query(machine: Machine, statement: str, database: str = "parley") -> str:
    """Return what a query of a machine's Postgres answers."""
    become = "cd / && runuser -u postgres --"
    return machine.type(f"{become} psql -Atc {shlex.quote(statement)} {database}").strip()


def main() -> str | None:
    """Tell the story; return the error message of the step that fails."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.booted", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the machines' files")
    options = parser.parse_args()
    if os.geteuid() != 0:
        return "only root can boot machines"
    if missing := [it for it in ("debootstrap", "systemd-nspawn") if not shutil.which(it)]:
        return f"{' and '.join(missing)} missing: apt-get install debootstrap systemd-container"
    packages = sorted((REPOSITORY / "dist").glob("parley_*.deb"))
    if not packages:
        return "there is no package in dist/; make one: make package"
    released = sorted((RELEASED / "dist").glob("parley_*.deb"))
    if not released:
        return "there is no package of the last release; make one: make released"
    step(
        lambda: make_root(PLACE / "base", packages[-1]),
        "a bare Debian root with the packages that an installation fetches",
    )
    return tell(packages[-1], released[-1], keep=options.keep)


def tell(package: Path, earlier: Path, *, keep: bool) -> str | None:
    """Tell the story on two machines; return the error message of the step that fails."""
    base = PLACE / "base"
    a, b = Machine("east", base, "10.77.0.1"), Machine("west", base, "10.77.0.2")
    story = Story(a, b, package, earlier)
    parts = (
        story.boot,
        story.install,
        story.back_up_by_itself,
        story.measure,
        story.api,
        story.hang,
        story.kill,
        story.reboot,
        story.pull_the_plug,
        story.upgrade,
        story.back_up_and_restore,
        story.lose_the_key,
        story.remove,
        story.purge_beside_a_stopped_database,
        story.find_the_database_of_another,
        story.introduce,
        story.move,
    )
    return tell_story(parts, (a, b), lambda: leave((a, b), keep=keep))


if __name__ == "__main__":
    sys.exit(main())
