"""The tree of an image: Kafka's names and texts, of the log that Apache Kafka 4.3.1 wrote."""

from __future__ import annotations

from tests.unit.metadata.kafka_log import kafka_snapshot

from tidegauge_controller.metadata.image import EMPTY, MetadataImage, Provenance
from tidegauge_controller.metadata.loader import MetadataLoader
from tidegauge_controller.metadata.tree import REDACTED, below, leaves, tree_of


def kafkas_image() -> MetadataImage:
    loader = MetadataLoader()
    loader.load_snapshot(kafka_snapshot(), Provenance(2620, 4, 1_796_000_000_123))
    return loader.image


def shown(path: str, hidden: str = "") -> str | list[str] | None:
    """Return a leaf's text, or a directory's names."""
    found = below(tree_of(kafkas_image(), lambda name: name == hidden), path)
    return list(found) if isinstance(found, dict) else found  # type: ignore[return-value]


def test_names_are_those_of_kafkas_image_nodes() -> None:
    """``MetadataImageNode.CHILDREN``, ``FeaturesImageNode``, ``ClusterImageNode``, ``TopicsImageNode``."""
    assert shown("/") == [
        *("provenance", "features", "cluster", "topics", "configs", "clientQuotas", "producerIds", "acls", "scram"),
        "delegationToken",
    ]
    assert shown("features/metadataVersion") == "Optional[4.3-IV0]"
    assert shown("features/finalized_transaction.version") == "2"
    assert shown("provenance") == "offset 2620, epoch 4, time 2026-11-30T00:53:20.123Z"
    assert shown("cluster") == ["brokers", "controllers"]
    assert shown("topics") == ["byName", "byId"]
    topic_id = shown("topics/byName/t1/id")
    assert shown(f"topics/byId/{topic_id}") == shown("topics/byName/t1") == ["name", "id", "0", "1"]
    assert shown(f"topics/byId/{topic_id}/name") == "t1"
    assert shown("topics/byName/t1/0/x") is None
    assert shown("no/such") is None


def test_a_partition_and_registrations_have_kafkas_words() -> None:
    """``PartitionRegistration.toString``, ``BrokerRegistration.toString``, ``ControllerRegistration.toString``."""
    image = kafkas_image()
    topic = image.topic_named("t1")
    assert topic is not None
    state = topic.partitions[0]
    assert str(shown("topics/byName/t1/0")) == (
        f"PartitionRegistration(replicas=[{', '.join(map(str, state.replicas))}], "
        f"directories=[{', '.join(state.directories)}], isr=[{', '.join(map(str, state.isr))}], removingReplicas=[], "
        f"addingReplicas=[], elr=[], lastKnownElr=[], leader={state.leader}, leaderRecoveryState=RECOVERED, "
        f"leaderEpoch={state.leader_epoch}, partitionEpoch={state.partition_epoch})"
    )
    broker = str(shown("cluster/brokers/1"))
    assert broker.startswith(f"BrokerRegistration(id=1, epoch={image.brokers[1].epoch}, incarnationId=")
    assert "listeners=[Endpoint(listenerName='PLAINTEXT', securityProtocol=PLAINTEXT, host='" in broker
    assert "metadata.version: 7-30" in broker
    assert "rack=Optional[r1], fenced=" in broker
    assert "zkMigrationReady=false" in str(shown("cluster/controllers/100"))


def test_secrets_are_not_shown() -> None:
    image = kafkas_image()
    kept = [text for credential in image.credentials.values() for text in (credential.salt, credential.stored_key)]
    assert kept, "the log has a SCRAM user"
    texts = "\n".join(text for _, text in leaves(tree_of(image, lambda _: True)) if text is not None)
    assert not any(one.hex() in texts or repr(one) in texts for one in kept)
    assert "iterations=" in texts
    assert shown("configs/BROKER/min.insync.replicas") != REDACTED
    assert shown("configs/BROKER/min.insync.replicas", hidden="min.insync.replicas") == REDACTED


def test_each_node_has_its_path_and_directories_come_before_their_children() -> None:
    found = list(leaves(tree_of(kafkas_image(), lambda _: False)))
    paths = [path for path, _ in found]
    assert len(paths) == len(set(paths))
    assert all(path.rpartition("/")[0] in {"", *paths[:at]} for at, path in enumerate(paths))
    assert dict(found)["/topics"] is None
    assert list(leaves("a leaf", "/x")) == [("/x", "a leaf")]


def test_an_empty_image_has_a_tree() -> None:
    tree = tree_of(EMPTY, lambda _: False)
    assert below(tree, "features/metadataVersion") == "Optional.empty"
    assert below(tree, "topics/byName") == {}
