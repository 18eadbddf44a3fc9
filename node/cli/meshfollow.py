"""``parley mesh follow``: keep this node's part of a published mesh as it is published."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from node.cli.admin import node_of_host
from node.cli.listing import collect_all
from node.cli.meshcommands import carry_out, done_view
from node.cli.meshfile import CONCURRENCY, MeshAnalysis, analyse_text, forecast_mesh
from node.cli.meshimport import insecure_option, named_option, nodes_by_address, omission_lines
from node.cli.meshplan import PLAN, change_summary, plan_view, record_of
from node.cli.options import options
from node.cli.output import Column, Record, RecordLayout, printable_text
from node.cli.session import Session, asks_node
from node.cli.times import local_time_text
from node.mesh.comparison import compare
from node.mesh.document import parse
from node.model import times
from node.model.errors import (
    Conflict,
    FieldFault,
    HostError,
    InvalidDocument,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    ParleyError,
    PeerUnreachable,
)
from node.model.loopback import is_exposed
from node.model.principals import FOLLOWER, Role
from node.model.times import duration_text
from node.model.wire.archives import ArchiveChoice
from node.model.wire.tokens import TokenRequest
from node.trust.private_files import prepare_directory, read_private, replace_private
from node.trust.tokens import write_token

INTERVAL = times.HOUR
_SOON = 5 * times.MINUTE
_SERVING = ".serving"
_NODE = "node"
TOKEN = "token"  # noqa: S105 - the name of a file
"""The file of the token of the service that follows, which has the role ``operate``."""


@dataclass(frozen=True)
class FollowOutcome:
    """The outcome of a pass: a word, a sentence, and what led to it.

    ``at`` is an instant in µs, ``digest`` that of the mesh file that was applied last, ``drift``
    what somebody else had changed since, ``omissions`` how much the file has not of its template.
    """

    at: int
    word: str
    sentence: str
    digest: str | None = None
    drift: tuple[str, ...] = ()
    omissions: int = 0

    @property
    def was_carried_out(self) -> bool:
        """Return whether the tasks were made as the file says."""
        return self.word in {"in step", "changed"}


@dataclass(frozen=True)
class FollowedMesh:
    """A published mesh that this node follows. ``whole``: all of it, not only this node's part."""

    name: str
    source: str
    interval: int = INTERVAL
    whole: bool = False
    insecure: bool = False
    named: Mapping[str, str] = field(default_factory=dict)
    last: FollowOutcome | None = None
    archives: tuple[str, ...] | None = None
    """Digests of the archives that it had when it was followed; None if that was not kept."""

    @property
    def due_at(self) -> int:
        """Return when its next pass is due; after one that failed it is soon."""
        if self.last is None:
            return 0
        pause = self.interval if self.last.was_carried_out else min(self.interval, _SOON)
        return self.last.at + pause


class FollowStore:
    """The followed meshes of one node."""

    def __init__(self, state_dir: Path) -> None:
        """Use the folder ``follows`` of the state directory, which is made if it is missing."""
        prepare_directory(state_dir)
        self.folder = state_dir / "follows"
        prepare_directory(self.folder)

    def owner(self) -> str | None:
        """Return the key of the node whose state directory this is; None if no file tells it."""
        if (kept := read_private(self.folder / _NODE)) is not None:
            return kept.decode().strip()
        from node.trust.keys import NodeKey  # loads cryptography

        key = self.folder.with_name("node.pem")
        if not key.exists() or not os.access(key, os.R_OK):  # the service may not read it
            return None
        return NodeKey.load_or_create(key).identity

    def keep_owner(self, identity: str) -> None:
        """Keep whose state directory this is, for a process that may not read the node's key."""
        if self.owner() is None or not (self.folder / _NODE).exists():
            replace_private(self.folder / _NODE, identity.encode())

    def token(self) -> str | None:
        """Return the token of the service that follows; None if none was made."""
        content = read_private(self.folder / TOKEN)
        return None if content is None else content.decode().strip()

    def meshes(self) -> list[FollowedMesh]:
        """Return all followed meshes, by name.

        :raises HostError: one of the files cannot be read.
        """
        names = sorted(path.stem for path in self.folder.glob("*.json"))
        return [self.mesh(name) for name in names]

    def mesh(self, name: str) -> FollowedMesh:
        """Return the mesh of this name.

        :raises NotFound: no mesh of this name is followed.
        """
        content = read_private(self._file(name))
        if content is None:
            raise NotFound(f"this node follows no mesh {name}; see: parley mesh follow --list")
        try:
            document = json.loads(content)
            last = document.pop("last")
            if last is not None:
                last = FollowOutcome(**{**last, "drift": tuple(last["drift"])})
            archives = document.pop("archives", None)
            kept = None if archives is None else tuple(archives)
            return FollowedMesh(**document, last=last, archives=kept)
        except (ValueError, TypeError, KeyError) as error:
            msg = f"{self._file(name)} is damaged ({error}); remove it, and follow the mesh again"
            raise HostError(msg) from None

    def has_mesh(self, name: str) -> bool:
        """Return whether a mesh of this name is followed."""
        return self._file(name).exists()

    def store(self, mesh: FollowedMesh) -> None:
        """Write the file of a mesh, whether or not it existed."""
        replace_private(self._file(mesh.name), json.dumps(asdict(mesh), indent=2).encode())

    def store_outcome(self, mesh: FollowedMesh, outcome: FollowOutcome) -> FollowedMesh:
        """Store the outcome of a pass over a mesh; return the mesh with it."""
        kept = replace(mesh, last=outcome)
        self.store(kept)
        return kept

    def remove(self, name: str) -> None:
        """Delete the files of a mesh, so that it is followed no more."""
        for path in (self._file(name), self.applied_file(name)):
            path.unlink(missing_ok=True)

    def applied_file(self, name: str) -> Path:
        """Return the file that has the mesh as it was applied last."""
        return self.folder / f"{name}.toml"

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    @contextlib.contextmanager
    def lock_of_mesh(self, name: str) -> Iterator[None]:
        """Keep others from the same mesh meanwhile.

        :raises Conflict: somebody else is at it, with the number of the process.
        """
        what = f"process {{}} is at work on mesh {name}; try again when it has finished"
        with self._lock(f"{name}.lock", what):
            yield

    @contextlib.contextmanager
    def lock_of_service(self) -> Iterator[None]:
        """Be the only one that follows the meshes of this node all the time.

        :raises Conflict: another process does.
        """
        with self._lock(_SERVING, "process {} follows the meshes of this node already"):
            yield

    @contextlib.contextmanager
    def _lock(self, name: str, sentence: str) -> Iterator[None]:
        descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.read(descriptor, 20).decode(errors="replace").strip() or "another"
                raise Conflict(sentence.format(owner)) from None
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(descriptor)


def as_record(mesh: FollowedMesh) -> dict[str, Any]:
    """Return a followed mesh as JSON, with written times."""
    last = mesh.last
    return {
        "name": mesh.name,
        "source": mesh.source,
        "interval": times.format_duration(mesh.interval),
        "whole": mesh.whole,
        "next_at": times.format_instant(mesh.due_at) if last is not None else None,
        "last": None
        if last is None
        else {
            **asdict(last),
            "at": times.format_instant(last.at),
            "drift": list(last.drift),
        },
    }


_LOOK_S = 10.0
_EXPOSED = "it is published over plain HTTP: whoever is on the way decides what is measured here"
_DRIFTS = 20


@dataclass(frozen=True)
class _Published:
    """A mesh as it is published, for this node: the text of its mesh file, and its name.

    ``part`` is the node whose tasks count, None for all; ``empty``: nothing is for this node.
    ``omissions`` are lines on what it has not of its template, ``effect`` how many tasks that is.
    """

    name: str
    text: str
    as_toml: bool = True
    part: str | None = None
    omissions: tuple[str, ...] = ()
    effect: tuple[str, ...] = ()
    empty: bool = False

    @property
    def archives(self) -> dict[str, str]:
        """Return its archives in words, by a digest of each."""
        document = None if self.empty else parse(self.text, toml=self.as_toml).document
        choices = () if document is None else document.archives.values()
        return {_digest(each): _archive_text(each) for each in choices}

    @property
    def digest(self) -> str:
        """Return the SHA-256 of its text, in hex: it differs once the mesh is published anew."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def _drift(mesh: Record) -> str:
    last = mesh["last"]
    return "" if last is None or not last["drift"] else f"{len(last['drift'])} put back"


FOLLOWED = RecordLayout(
    "name,source,interval,whole,next_at,last",
    Column("mesh", lambda mesh: mesh["name"], whole=True),
    Column("from", lambda mesh: printable_text(mesh["source"])),
    Column("every", lambda mesh: duration_text(mesh["interval"]), whole=True),
    Column("last", lambda mesh: local_time_text(mesh["last"] and mesh["last"]["at"]), whole=True),
    Column("drift", _drift, whole=True),
    Column(
        "outcome", lambda mesh: printable_text(mesh["last"]["sentence"] if mesh["last"] else "")
    ),
    empty="No meshes are followed. Follow one: parley mesh follow URL",
)


@click.command("follow")
@click.argument("source", metavar="[FILE|URL]", required=False)
@options("""
    --interval DURATION  How often to look [1h].
    --name NAME          The name of the mesh [what the file says].
    --whole              All of the mesh: this node leads every task.
""")
@named_option
@insecure_option
@options("""
    --dry-run         Only show what would be done, and keep nothing.
    --now             Look now, at all followed meshes or that of --name.
    --list as listed  Show the followed meshes, and how they are.
    --stop NAME       Follow a mesh no more, and end its tasks.
    --keep            With --stop: keep the tasks.
    --serve           Look again and again; for parley-follow.service.
""")
@asks_node
async def follow(
    session: Session,
    source: str | None,
    *,
    interval: int | None,
    name: str | None,
    whole: bool,
    named: tuple[str, ...],
    insecure: bool,
    dry_run: bool,
    now: bool,
    listed: bool,
    stop: str | None,
    keep: bool,
    serve: bool,
) -> int:
    """Keep this node's part of a published mesh as it is published: psConfig, or a mesh file.

    \b
      parley mesh follow https://config.example/psconfig.json --dry-run
      parley mesh follow https://config.example/psconfig.json --interval 1h
      parley mesh follow --list

    This node's part of a template is what its own addresses schedule; of a mesh file, the tasks of
    which it is the source. It is applied at once, and then by parley-follow.service. While the URL
    is away, or the file is broken, everything stays as it is. Tasks that somebody changed are
    shown as drift, and put back. Tasks that are not published any more end.
    """  # noqa: D301 - click's mark for lines to keep
    wanted = [source is not None, now, listed, stop is not None, serve]
    if sum(wanted) != 1:
        raise click.UsageError("give a file or URL, or one of --now, --list, --stop and --serve")
    with node_of_host({}) as (settings, _):
        follower = Follower(session, FollowStore(settings.state_dir))
        if listed:
            session.output.print_list(list(map(as_record, follower.store.meshes())), FOLLOWED)
            return 0
        await follower.require_own_node()
        if stop is not None:
            return await follower.stop(stop, keep=keep)
        if serve:
            await follower.serve()
            return 0
        if now:
            return await follower.look_at_all(name)
        assert source is not None  # noqa: S101 - one of the five is given
        mesh = FollowedMesh(
            name or "",
            _whole_path(source),
            interval or INTERVAL,
            whole,
            insecure,
            nodes_by_address(named),
        )
        return await follower.begin(mesh, dry_run=dry_run)


def _whole_path(source: str) -> str:
    """Return a file's path from the root: another process will read it, from elsewhere."""
    return source if source.startswith(("http://", "https://")) else str(Path(source).absolute())


class Follower:
    """Looks at published meshes, and makes this node's tasks match them."""

    def __init__(self, session: Session, store: FollowStore) -> None:
        self._session = session
        self.store = store

    async def require_own_node(self) -> None:
        """Check that the node that is asked is the one whose state directory keeps the meshes.

        :raises Conflict: it is another one, whose meshes ``parley-follow`` here would lead.
        """
        owner = self.store.owner()
        card = await self._session.client.own_card()
        if owner is not None and card.identity != owner:
            place = self.store.folder.parent
            raise Conflict(
                f"meshes are followed by the node of {place}, which is not {card.name}; set "
                f"PARLEY_STATE_DIR to the state directory of {card.name}, or type it on its host"
            )
        self.store.keep_owner(card.identity)

    async def begin(self, mesh: FollowedMesh, *, dry_run: bool) -> int:
        """Follow a mesh from now on, or only show what would be done.

        :raises Conflict: another one of this name is followed.
        """
        published = await self._fetch_published(mesh)
        if self.store.has_mesh(published.name) and not dry_run:
            known = self.store.mesh(published.name)
            if known.source != mesh.source:
                raise Conflict(
                    f"mesh {published.name} is followed from {known.source}; first: parley mesh "
                    f"follow --stop {published.name}, or give this one another name: --name"
                )
        self._tell_omissions(published)
        if _comes_in_clear(mesh.source):
            self._session.progress.note(f"! {_EXPOSED}")
        if not dry_run and mesh.name != published.name and not self.store.has_mesh(published.name):
            await self._require_no_end(published)
        mesh = replace(mesh, name=published.name, archives=tuple(published.archives))
        if dry_run:
            analysis = await self._analyse(published)
            forecast = await forecast_mesh(self._session, analysis, ())
            self._session.output.print_one(record_of(forecast), PLAN, plan_view)
            return forecast.analysis.exit_code
        await self._make_token()
        with self.store.lock_of_mesh(mesh.name):
            self.store.store(mesh)
            exit_code = await self._apply(mesh, published)
        self._show([mesh.name])
        return exit_code

    async def _require_no_end(self, published: _Published) -> None:
        """Check that a publisher has not taken the name of a mesh whose tasks would end.

        :raises Conflict: there are such tasks, which were not made by following it.
        """
        if end := (await self._analyse(published)).comparison.end:
            raise Conflict(
                f"{len(end)} tasks of a mesh {published.name} are here that are not published "
                f"there, and would end; if that is right, add: --name {published.name}"
            )

    def _show(self, names: Sequence[str]) -> None:
        records = [as_record(self.store.mesh(name)) for name in names]
        self._session.output.print_list(records, FOLLOWED)

    async def look_at_all(self, name: str | None) -> int:
        """Look now at all meshes, or at one; return the exit code of the last one that failed."""
        meshes = [self.store.mesh(name)] if name is not None else self.store.meshes()
        exit_code = 0
        for mesh in meshes:
            exit_code = await self.look(mesh.name) or exit_code
        self._show([mesh.name for mesh in meshes])
        return exit_code

    async def look(self, name: str) -> int:
        """Fetch a mesh and apply it; return the exit code.

        :raises Conflict: somebody else is at it.
        """
        with self.store.lock_of_mesh(name):
            mesh = self.store.mesh(name)
            try:
                published = await self._fetch_published(mesh)
                if published.name != mesh.name:
                    words = f"it is called {published.name} now; stop {name}, and follow it anew"
                    return self._store_unchanged(mesh, "broken", words, InvalidDocument.exit_code)
                if new := _new_archives(published, mesh):
                    words = (
                        f"it sends results to {', '.join(new)}, which it did not when it was "
                        f"followed; if that is right: parley mesh follow {mesh.source}"
                    )
                    return self._store_unchanged(mesh, "broken", words, InvalidDocument.exit_code)
                if mesh.last is None or mesh.last.digest != published.digest:
                    self._tell_omissions(published)
                mesh = replace(mesh, archives=tuple(published.archives))
                return await self._apply(mesh, published)
            except Exception as error:  # noqa: BLE001 - other meshes are still to be looked at
                return self._store_unchanged(mesh, *_outcome_of(error))

    def _tell_omissions(self, published: _Published) -> None:
        self._session.progress.note("\n".join([*published.omissions, *published.effect]))

    def _store_unchanged(self, mesh: FollowedMesh, word: str, why: str, exit_code: int) -> int:
        """Store that nothing was changed, and say why."""
        last = mesh.last
        words = {"away": "nothing is changed while it is away", "broken": "nothing is changed"}
        text = f"{why}: {words.get(word, 'it is tried again soon')}"
        outcome = FollowOutcome(
            self._session.clock.now(), word, text, None if last is None else last.digest
        )
        self.store.store_outcome(mesh, outcome)
        self._session.progress.note(f"✗ mesh {mesh.name}: {printable_text(text)}")
        return exit_code

    async def _fetch_published(self, mesh: FollowedMesh) -> _Published:
        """Return a mesh as it is published for this node.

        :raises PeerUnreachable: it is away.
        :raises InvalidDocument: it is broken.
        """
        from node.cli import templates  # loads all tests
        from node.cli.published import Documents
        from node.pscheduler.psconfig.template import is_template
        from node.pscheduler.psconfig.writing import to_toml

        if _comes_in_clear(mesh.source) and not mesh.insecure:
            raise InvalidDocument([FieldFault("", f"{_EXPOSED}; use https, or --insecure")])
        read = Documents(insecure=mesh.insecure)
        text = await read.read_named(mesh.source)
        own = None if mesh.whole else await self._own_name()
        if not is_template(text):
            as_toml = not text.lstrip().startswith("{")
            parsed = parse(text, toml=as_toml)
            if parsed.faults or parsed.document is None:
                raise InvalidDocument(list(parsed.faults))
            return _Published(parsed.document.name, text, as_toml=as_toml, part=own)
        made = await templates.translate_template(
            self._session,
            text,
            mesh.source,
            read,
            name=mesh.name or None,
            named=mesh.named,
            part=not mesh.whole,
        )
        written = to_toml(made.mesh, made.omissions, mesh.source)
        name = str(made.mesh["name"])
        told = tuple(omission_lines(made.omissions))
        return _Published(
            name, written, omissions=told, effect=made.effect_lines, empty=not made.tasks
        )

    async def _own_name(self) -> str:
        nodes = (await self._session.client.nodes()).items
        return next(node.name for node in nodes if node.is_self)

    async def _analyse(self, published: _Published) -> MeshAnalysis:
        path = f"{published.name}.{'toml' if published.as_toml else 'json'}"
        if not published.empty:
            return await analyse_text(self._session, path, published.text, part=published.part)
        what = f"reading the tasks of mesh {published.name}"
        page = partial(self._session.client.mesh_tasks, published.name)
        existing = tuple(await collect_all(self._session, page, what))
        document = parse(f'name = "{published.name}"', toml=True).document
        compared = compare({}, (), existing)
        return MeshAnalysis(
            path, published.text, (), document, existing=existing, comparison=compared
        )

    async def _apply(self, mesh: FollowedMesh, published: _Published) -> int:
        """Make the tasks match what is published, and store how that went."""
        session = self._session
        analysis = await self._analyse(published)
        if analysis.stopped:
            faults = "; ".join(f"{it.pointer} {it.detail}" for it in analysis.findings if it.stops)
            return self._store_unchanged(mesh, "broken", faults, InvalidDocument.exit_code)
        last = mesh.last
        unpublished = last is not None and last.digest == published.digest
        drift = tuple(_drifts(analysis)) if unpublished else ()
        for line in drift:
            session.progress.note(printable_text(f"! drift: {line}"))
        async with self._posting_session() as posting:
            record, exit_code = await carry_out(posting, analysis, CONCURRENCY)
        _keep_text(self.store, published)
        changed = any(record[verb] for verb in ("created", "edited", "ended"))
        done = " ".join(done_view(record).partition(": ")[2].split())
        text = done if changed or exit_code else change_summary(analysis)
        text = "; ".join([text, *published.effect])
        word = "failed" if exit_code else "changed" if changed else "in step"
        outcome = FollowOutcome(
            session.clock.now(), word, text, published.digest, drift, len(published.omissions)
        )
        self.store.store_outcome(mesh, outcome)
        return exit_code

    async def stop(self, name: str, *, keep: bool) -> int:
        """Follow a mesh no more; its tasks end, unless they are kept."""
        with self.store.lock_of_mesh(name):
            mesh = self.store.mesh(name)
            exit_code = 0
            if not keep:
                nothing = _Published(name, "", empty=True)
                analysis = await self._analyse(nothing)
                record, exit_code = await carry_out(self._session, analysis, CONCURRENCY)
                self._session.progress.note(done_view(record))
            if exit_code == 0:
                self.store.remove(mesh.name)
                left = "; its tasks stay" if keep else ""
                self._session.progress.note(f"mesh {name} is not followed any more{left}.")
            return exit_code

    async def serve(self) -> None:
        """Look at each mesh when it is due, until stopped.

        :raises Conflict: another process does.
        """
        clock = self._session.clock
        with self.store.lock_of_service():
            while True:
                for mesh in self.store.meshes():
                    if mesh.due_at <= clock.now():
                        await self._look_and_go_on(mesh.name)
                await clock.sleep(_LOOK_S)

    async def _make_token(self) -> None:
        """Make a token for the service that follows, which needs no more than the role operate.

        :raises NotAllowed: only the owner makes tokens.
        """
        if self.store.token() is not None:
            return
        request = TokenRequest(label=FOLLOWER, role=Role.OPERATE)
        try:
            made = await self._session.client.add_token(request)
        except (NotAllowed, NotAuthenticated) as error:
            words = "there is no token for parley-follow yet, and only the owner's token makes one"
            raise NotAllowed(f"{words}; follow the first mesh with that") from error
        write_token(self.store.folder / TOKEN, made.token)

    @contextlib.asynccontextmanager
    async def _posting_session(self) -> AsyncIterator[Session]:
        """Yield the session in which tasks are posted: that of parley-follow, whoever looks.

        So a publisher's word has the same reach when the owner types the command.

        :raises NotAllowed: parley-follow has no token.
        """
        token, connect = self.store.token(), self._session.connect
        if token is None or connect is None:
            words = "there is no token for parley-follow; a restart of the node makes one"
            raise NotAllowed(words)
        async with connect(token) as client:
            yield replace(self._session, reader=client)

    async def _look_and_go_on(self, name: str) -> None:
        try:
            await self.look(name)
        except ParleyError as error:  # somebody else is at it, or has just stopped it
            self._session.progress.note(printable_text(error.detail))


def _digest(choice: ArchiveChoice) -> str:
    return hashlib.sha256(choice.model_dump_json().encode()).hexdigest()


def _archive_text(choice: ArchiveChoice) -> str:
    place = choice.spec.get("url") or choice.spec.get("host") or choice.spec.get("brokers") or ""
    return printable_text(f"{choice.archiver} {place}".strip())


def _outcome_of(error: Exception) -> tuple[str, str, int]:
    """Return the word and the sentence of a pass that changed nothing, and its exit code."""
    match error:
        case PeerUnreachable():
            return "away", error.detail, error.exit_code
        case InvalidDocument():
            fault = "; ".join(f"{it.pointer or '/'} {it.detail}" for it in error.faults)
            return "broken", fault, error.exit_code
        case ParleyError():
            return "failed", error.detail, error.exit_code
        case _:
            return "failed", f"this program failed: {error!r}", ParleyError.exit_code


def _new_archives(published: _Published, mesh: FollowedMesh) -> list[str]:
    known = published.archives if mesh.archives is None else mesh.archives
    return [words for digest, words in published.archives.items() if digest not in known]


def _drifts(analysis: MeshAnalysis) -> Sequence[str]:
    """Return sentences on what somebody else has changed since the file was applied."""
    compared = analysis.comparison
    lines = [f"{edit.task.key} was edited: {'; '.join(edit.differences)}" for edit in compared.edit]
    lines += [f"{creation.key} is missing" for creation in compared.create]
    lines += [f"{ending.task.key}: {ending.reason}" for ending in compared.end]
    more = len(lines) - _DRIFTS
    return [*lines[:_DRIFTS], *([f"and {more} more"] if more > 0 else [])]


def _keep_text(store: FollowStore, published: _Published) -> None:
    """Write the mesh file as it was applied to the state directory, for people to read."""
    replace_private(store.applied_file(published.name), published.text.encode())


def _comes_in_clear(source: str) -> bool:
    """Return whether a document comes from another host by plain HTTP; files do not."""
    return source.lower().startswith("http:") and is_exposed(source)
