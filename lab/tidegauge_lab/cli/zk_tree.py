"""``tidegauge zk-tree``: the znodes of a cluster, with data, versions and owners.

Each line is a znode: its name indented by its depth, its data, and behind ``#`` its version, and for an ephemeral one
whose session owns it. With ``--watch`` the changes follow, a line each: ``+`` created, ``~`` changed, ``-`` deleted.
JSON: one document ``{"znodes":[{"path","data","version","czxid","owner"}]}``, with ``--watch`` an object a line, the
changes with ``"change"`` too; data that is not UTF-8 is written as ``{"base64": ...}``, ZooKeeper's null as null.
The address comes from ``--zookeeper``, else from the cluster in ``--dir``. A ZooKeeper that does not respond costs five
seconds and one sentence.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import click

from tidegauge.cli import directory_option, output_option, pause, print_json, print_line
from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.znodes import BROKER_IDS
from tidegauge_client.cluster_file import load_cluster_file
from tidegauge_lab.cli.verbs import ZOOKEEPER_ADDRESS, lab_verb

RESPONSE_SECONDS = 5.0
LOOK_AGAIN_SECONDS = 0.25


class Znode(NamedTuple):
    """One znode; ``data`` None is ZooKeeper's null, ``owner`` the id of the session that owns an ephemeral one."""

    data: bytes | None
    version: int
    czxid: int
    owner: int


Tree = Mapping[str, Znode]


class _Client:
    """A read-only look into ZooKeeper; kazoo's missing types stay in here.

    Args:
        address: of its servers, with a chroot.
        to_do: what the user can do when it does not respond, for the end of that sentence.
    """

    def __init__(self, address: str, to_do: str) -> None:
        from kazoo.client import KazooClient  # noqa: PLC0415 - only this verb pays for it
        from kazoo.exceptions import KazooException, NoNodeError  # noqa: PLC0415 - the same
        from kazoo.handlers.threading import KazooTimeoutError  # noqa: PLC0415 - the same

        logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # the sentence below says it better
        self._address = address
        self._to_do = to_do
        self._no_node = NoNodeError
        self._problems = (KazooException, KazooTimeoutError)
        self._client: Any = KazooClient(hosts=address, read_only=True)

    def __enter__(self) -> Self:
        try:
            self._client.start(timeout=RESPONSE_SECONDS)
        except self._problems:
            self.__exit__()
            raise self._unreachable() from None
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()

    def _unreachable(self) -> TidegaugeError:
        return TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"ZooKeeper at {self._address} does not respond; {self._to_do}",
        )

    def tree(self) -> dict[str, Znode]:
        """All znodes below the chroot but ZooKeeper's own.

        Raises:
            TidegaugeError: ZooKeeper does not respond.
        """
        try:
            return dict(self._below("/"))
        except self._problems:
            raise self._unreachable() from None

    def _below(self, path: str) -> Iterator[tuple[str, Znode]]:
        try:
            names: list[str] = self._client.get_children(path)
            if path != "/":
                data, stat = self._client.get(path)
                yield path, Znode(data, stat.version, stat.czxid, stat.ephemeralOwner)
        except self._no_node:
            return  # it went while we walked
        for name in sorted(names, key=_by_number):
            child = f"{path.rstrip('/')}/{name}"
            if child != "/zookeeper":
                yield from self._below(child)


def _by_number(name: str) -> tuple[int, int, str]:
    """Brokers and partitions by number, then the rest by name."""
    return (0, int(name), "") if name.isdecimal() else (1, 0, name)


def owners_of(tree: Tree) -> dict[int, str]:
    """Whose session an ephemeral znode's owner is, by the brokers' registrations."""
    prefix = f"{BROKER_IDS}/"
    return {
        znode.owner: f"broker {path.removeprefix(prefix)}"
        for path, znode in tree.items()
        if path.startswith(prefix) and znode.owner
    }


def line_of(path: str, znode: Znode, owners: Mapping[int, str], *, whole_path: bool = False) -> str:
    """Return a znode as text."""
    depth = path.count("/") - 1
    name = path if whole_path else "  " * depth + path.rpartition("/")[2]
    parts = [name]
    if znode.data is not None:
        parts.append(znode.data.decode("utf-8", "backslashreplace"))
    about = f"# version {znode.version}"
    if znode.owner:
        about += f", ephemeral, owner {owners.get(znode.owner, 'unknown')} (session 0x{znode.owner:x})"
    return "  ".join([*parts, about])


def changes(old: Tree, new: Tree) -> Iterator[tuple[str, str, Znode]]:
    """Yield sign, path and znode of each change; a recreated znode counts as changed."""
    for path in [*new, *(path for path in old if path not in new)]:
        if path not in new:
            yield "-", path, old[path]
        elif path not in old:
            yield "+", path, new[path]
        elif old[path] != new[path]:
            yield "~", path, new[path]


def json_of(path: str, znode: Znode, owners: Mapping[int, str]) -> dict[str, Any]:
    """Return a znode as JSON."""
    data: Any = None
    if znode.data is not None:
        try:
            data = znode.data.decode()
        except UnicodeDecodeError:
            data = {"base64": base64.b64encode(znode.data).decode()}
    owner = {"session": f"0x{znode.owner:x}", "process": owners.get(znode.owner)} if znode.owner else None
    return {"path": path, "data": data, "version": znode.version, "czxid": znode.czxid, "owner": owner}


_GIVEN = "check the address that --zookeeper gives, and that it runs"


def _client(zookeeper: str | None, directory: Path) -> _Client:
    """Return a client of the given ZooKeeper, or else of the directory's cluster.

    Raises:
        TidegaugeError: INVALID_REQUEST, the cluster is in KRaft mode.
    """
    if zookeeper is not None:
        return _Client(zookeeper, _GIVEN)
    if load_cluster_file(directory).quorum is not None:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"the cluster in {directory} is in KRaft mode, and has no ZooKeeper: its metadata are in the log that the "
            f"controllers replicate; see {command_for(directory, 'metadata-tree')}",
        )
    return _Client(load_cluster_file(directory).zookeeper_address, _start_of(directory))


def _start_of(directory: Path) -> str:
    """Return how the ZooKeeper of the cluster in a directory is started."""
    if not load_cluster_file(directory).zookeeper_managed:
        return "it was not started by `tidegauge up`: start it on its own machine"
    return f"see {command_for(directory, 'status')}, and start it with {command_for(directory, 'start --zookeeper')}"


@click.command("zk-tree")
@click.option(
    "--zookeeper",
    type=ZOOKEEPER_ADDRESS,
    metavar="HOST:PORT[/CHROOT]",
    help="Which ZooKeeper; else the one of the cluster in --dir.",
)
@click.option("--watch", is_flag=True, help="Go on with what changes, until Ctrl-C.")
@directory_option
@output_option
@lab_verb
def zk_tree(zookeeper: str | None, watch: bool, directory: Path, output: str) -> None:
    """Show the znodes with their data, versions and owners."""
    with _client(zookeeper, directory) as client:
        tree = client.tree()
        owners = owners_of(tree)
        entries = [json_of(path, znode, owners) for path, znode in tree.items()]
        if output != "json":
            for path, znode in tree.items():
                print_line(line_of(path, znode, owners))
        elif not watch:
            print_json({"znodes": entries})
        else:
            for entry in entries:
                print_json(entry)
        while watch:
            pause(LOOK_AGAIN_SECONDS)
            now = client.tree()
            owners |= owners_of(now)
            for sign, path, znode in changes(tree, now):
                if output == "json":
                    print_json({"change": sign, **json_of(path, znode, owners)})
                else:
                    print_line(f"{sign} {line_of(path, znode, owners, whole_path=True)}")
            tree = now
