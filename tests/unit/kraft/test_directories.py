"""The log directories of a broker in KRaft mode (KafkaRaftServer.initializeLogDirs, KIP-858, KIP-966)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.uuids import uuid_of
from tidegauge_broker.log import checkpoints
from tidegauge_broker.metadata_log.meta_properties import NodeProperties, decode_meta_properties, encode_meta_properties
from tidegauge_broker.server.cluster.kraft.directories import KRaftDirectories

CLUSTER = "pQKNjKG6SIW1R46E3fVjJA"
ID = uuid_of("BBBBBBBBBBBBBBBBBBBBBA")


def formatted(path: Path, node_id: int = 1, cluster_id: str = CLUSTER, directory_id: bytes = ID) -> Path:
    """A directory with meta.properties."""
    path.mkdir()
    properties = NodeProperties(node_id, cluster_id, directory_id)
    (path / "meta.properties").write_bytes(encode_meta_properties(properties, 0))
    return path


def test_an_empty_directory_gets_its_properties(tmp_path: Path) -> None:
    """A directory that was added to log.dirs belongs to the node from then on, with an id of its own."""
    metadata, added = formatted(tmp_path / "a"), tmp_path / "b"
    found = KRaftDirectories.read(metadata, [metadata, added], 1, 0)
    assert found.cluster_id == CLUSTER
    made = decode_meta_properties((added / "meta.properties").read_bytes())
    assert (made.node_id, made.cluster_id) == (1, CLUSTER)
    assert made.directory_id not in {None, ID}
    assert set(found.ids) == {metadata, added}
    again = KRaftDirectories.read(metadata, [metadata, added], 1, 0)
    assert again.ids == found.ids


def test_the_metadata_directory_must_have_been_formatted(tmp_path: Path) -> None:
    with pytest.raises(TidegaugeError, match=r"No `meta\.properties` found in") as refused:
        KRaftDirectories.read(tmp_path, [tmp_path], 1, 0)
    assert refused.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"node_id": 2}, "Stored node id 2 doesn't match previous node id 1"),
        ({"cluster_id": "AAAAAAAAAAAAAAAAAAAAAA"}, "Invalid cluster.id in"),
        ({"directory_id": ID}, "have the same directory.id"),
    ],
)
def test_a_directory_of_another_owner_is_refused(tmp_path: Path, other: dict[str, object], sentence: str) -> None:
    metadata = formatted(tmp_path / "a")
    second = formatted(tmp_path / "b", **({"directory_id": uuid_of("CCCCCCCCCCCCCCCCCCCCCA")} | other))  # type: ignore[arg-type]
    with pytest.raises(TidegaugeError, match=sentence):
        KRaftDirectories.read(metadata, [metadata, second], 1, 0)


def test_a_second_metadata_log_is_refused(tmp_path: Path) -> None:
    metadata, second = formatted(tmp_path / "a"), tmp_path / "b"
    (second / "__cluster_metadata-0").mkdir(parents=True)
    with pytest.raises(TidegaugeError, match="which is not the metadata directory"):
        KRaftDirectories.read(metadata, [metadata, second], 1, 0)


@pytest.mark.parametrize(("epochs", "expected"), [((9, 9), 9), ((9, 8), -1), ((9, None), -1), ((None, None), -1)])
def test_a_shutdown_was_clean_if_all_directories_say_so(
    tmp_path: Path, epochs: tuple[int | None, int | None], expected: int
) -> None:
    """LogManager.readBrokerEpochFromCleanShutdownFiles: one and the same broker epoch in every directory."""
    metadata, second = formatted(tmp_path / "a"), tmp_path / "b"
    found = KRaftDirectories.read(metadata, [metadata, second], 1, 0)
    for path, epoch in zip((metadata, second), epochs, strict=True):
        if epoch is not None:
            checkpoints.write_clean_shutdown(path, broker_epoch=epoch)
    assert found.previous_epoch() == expected


def test_a_directory_that_cannot_be_used_is_offline_and_no_shutdown_was_clean(tmp_path: Path) -> None:
    metadata, second = formatted(tmp_path / "a"), tmp_path / "b"
    second.write_text("no directory")
    found = KRaftDirectories.read(metadata, [metadata, second], 1, 0)
    checkpoints.write_clean_shutdown(metadata, broker_epoch=9)
    assert set(found.ids) == {metadata}
    assert found.previous_epoch() == -1
