"""The commands: of each its module, and the sentence that the help page has for it.

``parley --help`` must come at once, so the sentences stand here, and a module is imported when a
command of it is called. Groups take their sentence from here; for the others a test compares.
"""

from __future__ import annotations

import click

from node.cli.options import rows

EXAMPLES: dict[str, tuple[str, ...]] = {
    "up": ("", "--name a --listen 192.0.2.1:8642 --allow-remote"),
    "rtt": ("192.0.2.7", "b.example --count 100 --interval 100ms --repeat 5m --no-wait"),
    "latency": ("b", "a b --count 600 --repeat 1h"),
    "throughput": ("b", "a b --duration 30s --streams 4 --congestion host", "b --udp --rate 50M"),
    "latencybg": ("a b --continuous --no-wait",),
    "interface": ("a --interface eth0 --continuous --no-wait",),
    "trace": ("192.0.2.7", "b.example --tcp --port 443 --as-numbers"),
    "mtu": ("192.0.2.7", "b.example --source b"),
    "dns": (
        "www.example.org",
        "example.org --type MX --ask 192.0.2.53 --repeat 10m",
        "www.example.org --https --ask dns.example.org",
    ),
    "http": ("https://www.example.org/ --status 200 --text Welcome",),
    "tcp": ("b.example 443", "192.0.2.7 22 --banner"),
    "tls": ("www.example.org --days 14 --repeat 1d",),
    "ntp": ("ntp.example.org --repeat 10m",),
    "clock": ("b", "a b --count 100"),
    "lab demo": ("", "--check"),
    "lab up": ("--nodes 3", "--nodes 2 --namespaces --delay-ms 20 --loss 0.01"),
    "task list": (
        "",
        "--state active --test rtt",
        "--mesh backbone --participant b",
        "--target 192.0.2.7 -o ids",
    ),
    "task show": ("@-1", "7c1e -o yaml"),
    "task release": ("7c1e",),
    "run list": (
        "",
        "--state failed,missed --from -1d",
        "--upcoming",
        "--task 7c1e --from yesterday --to today -o csv",
        "--mesh backbone --verdict suspicious,contaminated",
    ),
    "run show": ("@-1", "7c1e -o json"),
    "run follow": ("@-1", "7c1e --timeout 10m"),
    "run result": ("@-1", "7c1e --raw --part b", "7c1e --last 10"),
    "run cancel": ("7c1e 9d20",),
    "schedule": ("", "--from -1h --to +2h"),
    "explain": ("@-1", "7c1e --all", "7c1e --slot 10:05"),
    "simulate": ("--list", "pools --days 2"),
    "reservation list": ("", "-o wide"),
    "reservation show": ("@-1",),
    "reservation remove": ("7c1e",),
    "campaign list": ("", "-o yaml"),
    "campaign show": ("lab",),
    "campaign usage": ("", "lab --since -7d"),
    "campaign why": ("lab",),
    "campaign remove": ("lab",),
    "pool list": ("",),
    "pool show": ("world",),
    "pool edit": ("world --description 'all nodes with IPv6'",),
    "pool sets": ("",),
    "policy list": ("",),
    "policy show": ("shares", "maui-fairshare"),
    "pool remove": ("world",),
    "mesh list": ("",),
    "mesh plan": ("mesh.toml",),
    "mesh remove": ("backbone",),
    "archive list": ("", "-o yaml"),
    "archive show": ("hook",),
    "archive edit": ("hook --runs all", "hook --jq .result"),
    "archive remove": ("hook",),
    "archive kinds": ("",),
    "archive test": ("hook",),
    "archive backlog": ("",),
    "archive deliveries": ("--archive hook", "--run @-1"),
    "node list": ("", "-o wide"),
    "node show": ("", "b --jq .identity"),
    "node add": ("https://b.example:8642",),
    "node remove": ("b",),
    "node pardon": ("b",),
    "node compare": ("b",),
    "node share": ("",),
    "node rekey": ("",),
    "node revoke": ("--prepare", "--file revocation.jws", "b --yes"),
    "node unset": ("site",),
    "token list": ("",),
    "token revoke": ("7c1e",),
    "secret list": ("",),
    "secret remove": ("api-token",),
    "alert list": ("", "--all --mesh backbone"),
    "alert acknowledge": ("7c1e",),
    "alert silence": ("7c1e --for 8h",),
    "webhook list": ("",),
    "webhook test": ("pager",),
    "webhook remove": ("pager",),
    "test list": ("",),
    "test show": ("rtt", "throughput --jq .spec"),
    "tool list": ("", "-o wide"),
    "plugin list": ("",),
    "plugin new": ("acme-echo --kind test",),
    "plugin test": ("rtt", "rtt --run --spec dest=192.0.2.7"),
}
"""By command, the arguments of its examples."""


def with_examples(path: str, command: click.Command | None) -> click.Command | None:
    """Give a command its examples, which its help ends with."""
    if command is not None and command.epilog is None and path in EXAMPLES:
        lines = (f"  parley {path} {arguments}".rstrip() for arguments in EXAMPLES[path])
        command.epilog = "\n".join(("\b", "Examples:", *lines))
    return command


_TABLE = rows("""
    up services               Run one node here: API, page, lead, and a private Postgres unless
                              --dsn is given.
    lab lab.commands          Run several nodes on this host, for trying and testing.
    rtt shortcuts             Measure round-trip time and loss to HOST, any host.
    latency shortcuts         Measure delay, loss and jitter each way between nodes A (default: this
                              one) and B.
    latencybg shortcuts       Measure delay, loss and jitter each way between nodes, continuously.
    interface shortcuts       Count the traffic of a network interface of a node, continuously.
    throughput shortcuts      Measure how many bits per second get from node A (default: this one)
                              to node B.
    dns shortcuts             Ask a DNS server for NAME, and measure how long the answer takes.
    http shortcuts            Request URL, measure each phase until the answer is complete, and
                              check the answer.
    tcp shortcuts             Measure how long TCP connections to PORT of HOST take, any host.
    tls shortcuts             Measure the TLS handshake with HOST, and look at its certificates.
    ntp shortcuts             Measure how far the clock of the NTP server HOST is ahead of this one.
    clock shortcuts           Measure how far the clock of node B is ahead of the clock of node A
                              (default: this one).
    trace shortcuts           Find the path to HOST, any host, hop by hop.
    mtu shortcuts             Find the largest packet that gets to HOST, any host, in one piece.
    task tasks                Create, list, show, pause, resume, release, edit, cancel, export,
                              import tasks.
    plan plans                Preview tasks and meshes; nothing is booked or stored.
    run runs                  List, follow, repeat, cancel, export, verify runs; read results, and
                              why there are none.
    schedule schedule         Show past, current and future runs on the node, by their start.
    explain explain           Explain why a task or a run is in its state, or why a run has no time.
    simulate simulate         Simulate SCENARIO, a name or a TOML or JSON file: what would be
                              promised and delivered.
    reservation reservations  Reserve time of the node: for maintenance, a demo, or quiet.
    campaign campaigns        Add, list, show, edit and remove campaigns, and see what they use.
    pool pools                Add, list, show, edit and remove pools, and choose their policies.
    policy pools              List and show the policy sets that pools can have, and their options.
    mesh meshes               Plan, apply, import, follow, list and remove meshes, and see what they
                              deliver.
    archive archives          Configure where results are delivered, show the backlog, and retry
                              deliveries.
    node nodes                List, add, introduce, remove, compare, pardon nodes; drain, rekey,
                              describe this one.
    status status             Show how the node is, and what needs attention.
    doctor doctor             Find what is wrong with the node, or between two nodes, and what to
                              type next.
    top top                   Show what the node does now and next, who takes its time, and its
                              load.
    pair pair                 Show how the way between A (default: this node) and B is: all tests,
                              both directions.
    capacity capacity         Show how full the node is: for each hour the occupied share by class,
                              and what is booked.
    events events             Print the changes on the node as they happen, until Ctrl-C.
    open open                 Open the page of the node in a browser, logged in, or print its link.
    limits limits             Check and show the limits of what other nodes may have of this host.
    token tokens              Add, list and revoke the tokens of the node's users; each has a role.
    alert alerts              List alerts on what is measured, acknowledge and silence them, and try
                              rules on what was.
    webhook webhooks          Add, list, test and remove addresses that are told when something is
                              wrong.
    secret secrets            Add, list and remove secrets that specs of tests name, such as tokens
                              in headers.
    audit audit               Show who did what on the node, and who was refused.
    admin admin               Migrate, back up, restore, repair and move what a node has.
    test nodes                List and show what can be measured.
    tool nodes                List the programs that measure.
    plugin plugins            List, create and check tests, tools and archivers of other
                              distributions.
    login login               Keep a node with your token as a profile, and use it from now on.
    profile login             List the profiles of parley login, choose one, and remove one.
    completion completion     Print the script that completes words in a shell.
""")

COMMANDS = {
    name: (f"node.cli.{module}", text) for head, text in _TABLE for name, module in [head.split()]
}
"""Name → module, and one-line help; in the order of completions."""

GROUPS = {
    "Measure": "rtt latency latencybg interface throughput dns http tcp tls ntp clock trace mtu",
    "Look": "run schedule explain status doctor top pair capacity alert events open",
    "Plan": "task plan mesh campaign pool policy reservation simulate",
    "Fleet": "node limits test tool archive webhook",
    "Operate": "up login profile token secret audit admin completion",
    "Develop": "lab plugin",
}
"""The sections of the help page, each with its commands."""
