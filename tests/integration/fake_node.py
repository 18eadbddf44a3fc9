"""A program with the command line and the few endpoints of a node that a lab relies on."""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

import asyncpg
from aiohttp import web

from node.execution import process

TOKEN = web.AppKey("token", str)
PEERS: web.AppKey[list[str]] = web.AppKey("peers", list)


async def add_node(request: web.Request) -> web.Response:
    """Add a peer, for callers with the token."""
    if request.headers.get("Authorization") != f"Bearer {request.app[TOKEN]}":
        return web.json_response({"title": "Not authenticated"}, status=401)
    url = (await request.json())["url"]
    request.app[PEERS].append(url)
    unknown = dict.fromkeys(("seen_at", "unreachable_since", "last_error"))
    added = {"identity": "ed25519:x", "name": "x", "url": url, "address": "x.example", **unknown}
    return web.json_response(
        {**added, "is_self": False, "added_at": "2026-12-01T10:00:00Z"}, status=201
    )


async def list_nodes(request: web.Request) -> web.Response:
    """Return the peers that were added."""
    peers = request.app[PEERS]
    return web.json_response(sorted(peers))


async def ping(request: web.Request) -> web.Response:
    """Run ping from this node and return its output."""
    argv = ["ping", "-n", "-c", "5", "-i", "0.05", request.query["to"]]
    return web.Response(body=(await process.finish(argv, timeout_s=10)).stdout)


async def ready(_: web.Request) -> web.Response:
    """Report that the node is ready."""
    return web.Response()


def main() -> None:
    """Check the arguments and the database, and serve."""
    parser = argparse.ArgumentParser()
    for option in ("--name", "--listen", "--url", "--address", "--dsn"):
        parser.add_argument(option, required=True)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--allow-remote", action="store_true")
    parser.add_argument("--plain-http", action="store_true")
    parser.add_argument("--never-ready", action="store_true")
    parser.add_argument("--broken", action="store_true")
    options = parser.parse_args()
    if options.broken:
        sys.exit("the configuration is broken")
    host, _, port = options.listen.partition(":")
    if not host.startswith("127.") and not options.allow_remote:
        sys.exit("listening beyond loopback needs --allow-remote")

    app = web.Application()
    token_file: Path = options.state_dir / "token"
    if not token_file.exists():
        token_file.write_text(secrets.token_hex() + "\n")
    app[TOKEN] = token_file.read_text().strip()
    app[PEERS] = []
    app.router.add_post("/v1/nodes", add_node)
    app.router.add_get("/v1/nodes", list_nodes)
    app.router.add_get("/ping", ping)
    if not options.never_ready:
        app.router.add_get("/readyz", ready)

    async def check_database(_: web.Application) -> None:
        connection = await asyncpg.connect(options.dsn)
        await connection.close()

    app.on_startup.append(check_database)
    web.run_app(app, host=host, port=int(port))


if __name__ == "__main__":
    main()
