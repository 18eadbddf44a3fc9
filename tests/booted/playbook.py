"""``make playbook``: the Ansible role of ``deploy/ansible`` on two machines with a booted systemd.

The machines are those of ``make booted``, with an SSH server and a firewall that lets nothing else
in. It needs root, debootstrap, systemd-container, ansible-core and an SSH client, and about six
minutes. ``--keep`` leaves the machines' files for a look.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from pathlib import Path

from deploy.package import REPOSITORY
from tests.booted.machine import Machine, lay_cable, leave, make_root
from tests.support.steps import complete, require, run, step, tell_story, wait_until

PLACE = REPOSITORY / "build" / "playbook"
ANSIBLE = REPOSITORY / "deploy" / "ansible"
NEEDS = {
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "ansible-playbook": "ansible-core",
    "ssh-keygen": "openssh-client",
}
FIREWALL = """\
flush ruleset
table inet filter {
    chain input {
        type filter hook input priority 0; policy drop;
        ct state established,related accept
        meta iifname lo accept
        meta l4proto icmp accept
        tcp dport 22 accept
        reject
    }
}
"""
"""A firewall as many hosts have one: its last line would hide a line after it."""


class Story:
    """Both machines, and the inventory that names them."""

    def __init__(self, a: Machine, b: Machine, package: Path) -> None:
        """Tell it with this package."""
        self.a, self.b, self.package = a, b, package
        self.key, self.inventory = PLACE / "key", PLACE / "inventory.yml"

    def boot(self) -> None:
        """Two machines boot, with a firewall that lets in nothing but SSH."""
        lay_cable(self.a, self.b)
        self.key.unlink(missing_ok=True)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key)
        hosts = ""
        for machine in (self.a, self.b):
            keys = machine.root / "root/.ssh/authorized_keys"
            keys.parent.mkdir(mode=0o700, exist_ok=True)
            shutil.copy2(self.key.with_suffix(".pub"), keys)
            (machine.root / "etc/nftables.conf").write_text(FIREWALL)
            machine.boot()
            machine.type("systemctl enable --now --quiet nftables ssh")
            hosts += f"    {machine.name}: {{ansible_host: {machine.address}}}\n"
        self.inventory.write_text(
            f"parley:\n  hosts:\n{hosts}  vars:\n    ansible_user: root\n"
            f"    ansible_ssh_private_key_file: {self.key}\n    parley_package: {self.package}\n"
            "    parley_settings: {PARLEY_KEEP_FINISHED: P7D}\n"
        )

    def play(self, *argv: str) -> tuple[int, str]:
        """Run the playbook as its owner would; return its exit code and what it printed."""
        within = ("nsenter", f"--net=/run/netns/{self.a.namespace}", "ansible-playbook")
        environment = {
            **os.environ,
            "ANSIBLE_HOST_KEY_CHECKING": "False",
            "ANSIBLE_NOCOLOR": "1",
        }
        line: list[str | Path] = [
            *within,
            "--inventory",
            self.inventory,
            ANSIBLE / "parley.yml",
            *argv,
        ]
        ended = complete(line, environment=environment)
        return ended.returncode, ended.stdout + ended.stderr

    def install(self) -> None:
        """One command installs both nodes, opens the firewalls, introduces them, and measures."""
        code, said = self.play()
        require(code == 0, f"the playbook succeeds:\n{said[-3000:]}")
        for machine, other in ((self.a, self.b), (self.b, self.a)):
            require(other.name in machine.type("parley node list"), "each knows the other")
            machine.type("grep --quiet PARLEY_KEEP_FINISHED=P7D /etc/parley/parley.env")
        spec = f"{self.a.name} {self.b.name} --duration 2s --congestion host"
        self.a.type(f"parley throughput {spec}")

    def repeat(self) -> None:
        """The same command again changes nothing."""
        code, said = self.play()
        changed = re.findall(r"changed=(\d+)", said)
        require(code == 0 and changed == ["0", "0"], f"nothing is changed:\n{said[-3000:]}")

    def reboot(self) -> None:
        """After a reboot the firewall still lets the other node in."""
        self.b.shut_down()
        self.b.boot()
        rules = self.b.type("nft list chain inet filter input")
        require('comment "parley"' in rules, f"the line is there: {rules}")
        code, said = self.play("--tags", "check")
        require(code == 0, f"both measure:\n{said[-3000:]}")

    def close(self) -> None:
        """Behind a closed firewall the check fails, and says which node is not reached."""
        self.b.type(
            "nft flush chain inet filter input && nft add rule inet filter input "
            "tcp dport 22 accept && nft add rule inet filter input iifname lo accept"
        )
        self.b.type("nft add rule inet filter input ct state established,related accept")
        code, said = self.play("--tags", "check", "--extra-vars", "parley_measurement_timeout=20s")
        told = re.search(
            r"(?:north cannot measure to south|south cannot measure to north): .{20,}", said
        )
        require(code != 0 and told is not None, f"the check fails with a reason:\n{said[-3000:]}")
        print(f"      {told[0] if told else ''}")
        self.b.type("systemctl reload nftables")

    def stop_the_lead(self) -> None:
        """Without its lead a node is not ready: the check fails, and says why."""
        self.b.type("systemctl stop parley-lead")
        ready = "curl -fsS http://127.0.0.1:8642/readyz"
        wait_until(lambda: not self.b.try_(ready), "the node is not ready")
        code, said = self.play("--tags", "check", "--extra-vars", "parley_ready_seconds=3")
        told = re.search(r"south is not ready: .*lead.*", said)
        require(code != 0 and told is not None, f"the check fails with a reason:\n{said[-3000:]}")
        print(f"      {told[0] if told else ''}")


def tell(package: Path, *, keep: bool) -> str | None:
    """Tell the story on two machines; return the error message of the step that fails."""
    base = PLACE / "base"
    step(
        lambda: make_root(base, package, ",openssh-server,python3,python3-apt"),
        "a bare Debian root with SSH and what an installation fetches",
    )
    a, b = Machine("north", base, "10.79.0.1"), Machine("south", base, "10.79.0.2")
    story = Story(a, b, package)
    parts = (
        story.boot,
        story.install,
        story.repeat,
        story.reboot,
        story.close,
        story.stop_the_lead,
    )
    return tell_story(parts, (a, b), lambda: leave((a, b), keep=keep))


def main() -> str | None:
    """Tell the story if this host can; return the error message otherwise."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.booted.playbook", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the machines' files")
    options = parser.parse_args()
    if os.geteuid() != 0:
        return "only root can boot machines"
    if missing := [package for name, package in NEEDS.items() if not shutil.which(name)]:
        return f"missing: apt-get install --no-install-recommends {' '.join(missing)}"
    packages = sorted((REPOSITORY / "dist").glob("parley_*.deb"))
    if not packages:
        return "there is no package in dist/; make one: make package"
    return tell(packages[-1], keep=options.keep)


if __name__ == "__main__":
    sys.exit(main())
