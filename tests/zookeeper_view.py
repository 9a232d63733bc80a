"""A test's own look into ZooKeeper: every znode with data, version and owner; kazoo's missing types stay in here."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError


class Znode(NamedTuple):
    """One znode; ``data`` None is null, ``owner`` 0 means that it is persistent."""

    data: bytes | None
    version: int
    czxid: int
    mzxid: int
    owner: int


class ZooKeeperView:
    """Reads what lies below a chroot."""

    def __init__(self, connect: str) -> None:
        self._client = KazooClient(hosts=connect, timeout=30)
        self._client.start(timeout=30)

    def close(self) -> None:
        """End the session."""
        self._client.stop()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def tree(self, path: str = "") -> dict[str, Znode]:
        """Every znode below ``path``, by its path, but ZooKeeper's own."""
        return dict(self._below(path or "/"))

    def _below(self, path: str) -> Iterator[tuple[str, Znode]]:
        with contextlib.suppress(NoNodeError):
            if path != "/":
                yield path, self.znode(path)
            for name in sorted(self._client.get_children(path)):
                child = f"{path.rstrip('/')}/{name}"
                if child != "/zookeeper":
                    yield from self._below(child)

    def znode(self, path: str) -> Znode:
        """Return one znode; raise NoNodeError if there is none."""
        data, stat = self._client.get(path)
        return Znode(data, stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner)

    def exists(self, path: str) -> bool:
        """Whether the znode is there."""
        return self._client.exists(path) is not None

    def children(self, path: str) -> list[str]:
        """Names below a znode, sorted."""
        return sorted(self._client.get_children(path))

    def json(self, path: str) -> Any:
        """A znode's payload."""
        return json.loads(self.znode(path).data or b"null")

    def state(self, topic: str, partition: int = 0) -> dict[str, Any]:
        """A partition's state, and the znode's version as ``partition_epoch``."""
        znode = self.znode(f"/brokers/topics/{topic}/partitions/{partition}/state")
        return json.loads(znode.data or b"{}") | {"partition_epoch": znode.version}

    def broker_epoch(self, broker_id: int) -> int | None:
        """The czxid of the broker's registration; None while there is none."""
        with contextlib.suppress(NoNodeError):
            return self.znode(f"/brokers/ids/{broker_id}").czxid
        return None

    def delete(self, path: str) -> None:
        """Take a znode away, as an operator with ZooKeeper's shell does."""
        self._client.delete(path)

    def create(self, path: str, data: bytes) -> None:
        """Make a znode, likewise."""
        self._client.create(path, data)

    def set(self, path: str, data: bytes) -> None:
        """Overwrite a znode, likewise."""
        self._client.set(path, data)

    def controller(self) -> tuple[int | None, int]:
        """The controller's broker, if there is one, and the controller epoch."""
        epoch = int(self.znode("/controller_epoch").data or b"0")
        with contextlib.suppress(NoNodeError):
            return int(self.json("/controller")["brokerid"]), epoch
        return None, epoch
