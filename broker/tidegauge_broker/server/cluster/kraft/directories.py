"""The log directories of a broker in KRaft mode: whose they are, and their ids.

Rules:
    1. Each directory has a ``meta.properties`` of version 1 with the cluster's id, the node's and its own. The metadata
       directory must have been formatted; an empty one of the others is given the file
       (``KafkaRaftServer.initializeLogDirs``).
    2. A directory that can't be read is offline, as long as it is not the metadata directory.
    3. A shutdown was clean if every directory says so, of one and the same broker epoch
       (``LogManager.readBrokerEpochFromCleanShutdownFiles``).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tidegauge.cluster_metadata import new_uuid
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.json_text import uuid_text
from tidegauge.kafka.kraft.uuids import uuid_of
from tidegauge_broker.log import checkpoints
from tidegauge_broker.log.files import DISK, StorageError
from tidegauge_broker.log.log_directory import LogDirectory
from tidegauge_broker.metadata_log.formatting import METADATA_PARTITION, check_owner
from tidegauge_broker.metadata_log.meta_properties import META_PROPERTIES, NodeProperties, encode_meta_properties
from tidegauge_broker.server.quorum.node_properties import read_node_properties

LOG = logging.getLogger("tidegauge.log")


class KRaftDirectories:
    """The log directories of a broker in KRaft mode (``log.manager.Owner``).

    Args:
        properties: of the metadata directory.
        metadata_directory: it is locked for this process already.
        ids: the id of each directory that is online, as text.
        problems: why the others can't be used.
    """

    def __init__(
        self,
        properties: NodeProperties,
        metadata_directory: Path,
        ids: Mapping[Path, str],
        problems: Mapping[Path, str],
    ) -> None:
        self.properties = properties
        self.ids = ids
        self._metadata_directory = metadata_directory
        self._problems = problems

    @classmethod
    def read(
        cls, metadata_directory: Path, log_directories: Iterable[Path], node_id: int, now_ms: int
    ) -> KRaftDirectories:
        """Read, and if rule 1 says so write, the properties of all directories. Blocks.

        Args:
            metadata_directory: of the metadata log.
            log_directories: the directories of ``log.dirs``.
            node_id: this broker.
            now_ms: the wall-clock time, which new files name.

        Raises:
            TidegaugeError: INVALID_CONFIG or INCONSISTENT_CLUSTER_ID, a directory is not this node's, or two have the
                same id.
        """
        own = read_node_properties(metadata_directory)
        check_owner(own, str(metadata_directory / META_PROPERTIES), own.cluster_id or "", node_id)
        ids: dict[Path, str] = {}
        problems: dict[Path, str] = {}
        for path in log_directories:
            try:
                found = own if path == metadata_directory else _properties(path, own, now_ms)
            except OSError as problem:
                problems[path] = f"Log directory {path} cannot be used: {problem.strerror or problem}"
                continue
            assert found.directory_id is not None
            ids[path] = uuid_text(found.directory_id)
        _check_distinct(ids)
        return cls(own, metadata_directory, ids, problems)

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        assert self.properties.cluster_id is not None
        return self.properties.cluster_id

    def id_bytes(self) -> list[bytes]:
        """Return the ids of the directories that are online, as requests have them."""
        return [uuid_of(one) for one in self.ids.values()]

    def previous_epoch(self) -> int:
        """Return the broker epoch of the last clean end, or -1.

        -1: the end was not clean, or none is known.
        """
        epochs = {checkpoints.read_clean_shutdown(path) for path in self.ids}
        return epochs.pop() if len(epochs) == 1 and not self._problems else -1

    def take(self, log_directory: LogDirectory) -> None:
        """Lock a directory for this process; the metadata directory is locked already."""
        if log_directory.path in self._problems:
            raise StorageError(self._problems[log_directory.path])
        if log_directory.path == self._metadata_directory:
            log_directory.share()
        else:
            log_directory.lock()


def _properties(path: Path, own: NodeProperties, now_ms: int) -> NodeProperties:
    """Return the properties of a directory beside the metadata directory.

    Raises:
        TidegaugeError: INVALID_CONFIG or INCONSISTENT_CLUSTER_ID, it is another node's.
        OSError: it can't be used.
    """
    assert own.cluster_id is not None
    assert own.node_id is not None
    path.mkdir(parents=True, exist_ok=True)
    if (path / METADATA_PARTITION).exists():
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            f"Found {METADATA_PARTITION} in {path}, which is not the metadata directory; move it away, or name the "
            "directory in metadata.log.dir",
        )
    if not (path / META_PROPERTIES).exists():
        made = NodeProperties(own.node_id, own.cluster_id, uuid_of(new_uuid(secrets.token_bytes(16))))
        DISK.replace(path / META_PROPERTIES, encode_meta_properties(made, now_ms))
        return made
    found = read_node_properties(path)
    check_owner(found, str(path / META_PROPERTIES), own.cluster_id, own.node_id)
    return found


def _check_distinct(ids: Mapping[Path, str]) -> None:
    by_id: dict[str, Path] = {}
    for path, directory_id in ids.items():
        other = by_id.setdefault(directory_id, path)
        if other != path:
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG,
                f"{other} and {path} have the same directory.id {directory_id}: one is a copy of the other; use "
                "another directory in log.dirs",
            )


class Misplaced(NamedTuple):
    """A replica of which the controller knows another directory than it lies in, or none (KIP-858)."""

    topic_id: str
    partition: int
    directory: str


FindMisplaced = Callable[[int], list[Misplaced]]
"""Returns such replicas, at most a given number."""
