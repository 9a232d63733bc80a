"""The files of ``tidegauge format``, and its refusals with Kafka's sentences (Formatter, StorageTool)."""

import dataclasses
import re
from collections.abc import Iterator

import pytest
from tests.unit.metadata_log.kafka_files import kafka_files

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.features import FEATURES, LEVELS, level_of_release
from tidegauge.kafka.kraft.json_text import uuid_text
from tidegauge_broker.metadata_log.formatting import Formatting, bootstrap_sentence, check_owner
from tidegauge_broker.metadata_log.initial_voters import parse_initial_voters
from tidegauge_broker.metadata_log.meta_properties import NodeProperties
from tidegauge_broker.metadata_log.scram_arguments import parse_scram
from tidegauge_broker.metadata_log.snapshots import read_snapshot

CLUSTER = "pQKNjKG6SIW1R46E3fVjJA"
SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
IDS = ("ERERERERQRGRERERERERAA", "ERERERERQRGRERERERERAQ", "ERERERERQRGRERERERERAg")
VOTERS = ",".join(f"{100 + n}@127.0.0.1:{9000 + n}:{directory}" for n, directory in enumerate(IDS))
DYNAMIC = Formatting(CLUSTER, 100, "data", initial_voters=parse_initial_voters(VOTERS, "CONTROLLER"))
STATIC = Formatting(CLUSTER, 1, "data", has_static_voters=True, release="3.9")


def records_of(data: bytes) -> Iterator[object]:
    """A snapshot's records without their times."""
    for batch in read_snapshot(data):
        yield batch.values
        yield [
            dataclasses.replace(m, last_contained_log_timestamp=0) if hasattr(m, "last_contained_log_timestamp") else m
            for m in batch.control
        ]


@pytest.mark.parametrize(
    ("asked", "name", "golden"),
    [
        (DYNAMIC, "bootstrap.checkpoint", "4.3/bootstrap.checkpoint"),
        (DYNAMIC, SNAPSHOT, "main/00000000000000000000-0000000000.checkpoint"),
        (STATIC, "bootstrap.checkpoint", "3.9/bootstrap.checkpoint"),
    ],
)
def test_the_files_have_the_records_that_kafka_writes(asked: Formatting, name: str, golden: str):
    """Kafka 4.3.1 formatted a dynamic voter and a static one of release 3.9; times are not compared."""
    directory_id = asked.directory_id_of("data") or bytes(15) + b"\x7f"
    ours = asked.files_of("data", directory_id, asked.levels(), 1_700_000_000_000)[name]
    theirs = kafka_files()[golden].data
    assert len(ours) == len(theirs)
    assert list(records_of(ours)) == list(records_of(theirs))


def test_a_voter_has_the_directory_id_that_the_list_gives_it():
    """KIP-853: the list names the metadata directory; other directories have ids of their own."""
    directory_id = DYNAMIC.directory_id_of("data")
    assert directory_id is not None
    assert uuid_text(directory_id) == IDS[0]
    assert DYNAMIC.directory_id_of("other") is None
    files = DYNAMIC.files_of("data", directory_id, DYNAMIC.levels(), 0)
    assert list(files)[-1] == "meta.properties"
    assert b"directory.id=ERERERERQRGRERERERERAA\n" in files["meta.properties"]


def test_a_static_quorum_and_further_directories_get_no_snapshot_of_voters():
    """Formatter.DirectoryType: only the metadata directory of a dynamic quorum has the snapshot (0, 0)."""
    for asked, directory in ((STATIC, "data"), (DYNAMIC, "other")):
        assert SNAPSHOT not in asked.files_of(directory, bytes(16), asked.levels(), 0)
    kinds = {STATIC.kind_of("data"), DYNAMIC.kind_of("data"), DYNAMIC.kind_of("other")}
    assert kinds == {"metadata directory", "dynamic metadata voter directory", "data directory"}
    observer = dataclasses.replace(DYNAMIC, node_id=7)
    assert observer.kind_of("data") == "dynamic metadata directory"
    assert SNAPSHOT in observer.files_of("data", bytes(16), observer.levels(), 0)


@pytest.mark.parametrize(
    ("release", "levels"),
    [
        ("3.9", [0, 0, 0, 0, 0]),
        ("4.0-IV1", [0, 1, 0, 0, 0]),
        ("4.0", [0, 1, 0, 0, 2]),
        ("4.1-IV0", [1, 1, 0, 0, 2]),
        ("4.2-IV0", [1, 1, 1, 0, 2]),
        ("4.3", [1, 1, 1, 1, 2]),
    ],
)
def test_a_release_decides_the_default_levels(release: str, levels: list[int]):
    """Feature.defaultLevel; printed by ``kafka-storage version-mapping`` of 4.3.1."""
    asked = Formatting(CLUSTER, 1, "data", has_static_voters=True, release=release).levels()
    assert asked["metadata.version"] == level_of_release(release)
    assert [asked[name] for name in FEATURES if name != "kraft.version"] == levels
    assert asked["kraft.version"] == 0


def test_every_stable_level_has_a_release():
    """MetadataVersion.fromVersionString takes whole names, and releases without a suffix."""
    assert [level_of_release(name) for name in LEVELS.values()] == list(LEVELS)
    assert level_of_release("3.7") == 19


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"features": {"foo": 1}},
            "Unsupported feature: foo. Supported features are: eligible.leader.replicas.version, ",
        ),
        ({"features": {"group.version": 7}}, "No feature:group.version with feature level 7"),
        ({"features": {"kraft.version": 0}}, "Cannot set kraft.version to 0 if controller.quorum.voters is empty"),
        (
            {"features": {"kraft.version": 1}, "initial_voters": None},
            "Cannot set kraft.version to 1 unless controller.quorum.voters is empty",
        ),
        ({"features": {"metadata.version": 31}}, "metadata.version 4.4-IV0 is not yet stable."),
        (
            {"features": {"metadata.version": 99}},
            "No MetadataVersion with feature level 99. Valid feature levels are from 7 to 31.",
        ),
        (
            {"features": {"metadata.version": 25}, "release": "3.9"},
            "Use --release-version instead of --feature metadata.version=X",
        ),
        (
            {"features": {"eligible.leader.replicas.version": 1}, "release": "3.9"},
            "because it depends on metadata.version level 23",
        ),
        ({"release": "9.9"}, "Unknown metadata.version '9.9'. Supported metadata.version are: 3.3-IV3, 3.4-IV0"),
        ({"release": "3.4", "credentials": [None]}, "SCRAM is only supported in metadata.version 3.5-IV2 or later."),
    ],
)
def test_levels_that_do_not_fit_are_refused(changes, sentence: str):
    """The sentences are kafka-storage 4.3.1's."""
    with pytest.raises(TidegaugeError, match=re.escape(sentence)):
        dataclasses.replace(DYNAMIC, **changes).levels()


def test_a_controller_needs_its_voters():
    """StorageTool.runFormatCommand: static voters, or exactly one of three options; brokers need none."""
    with pytest.raises(TidegaugeError, match=r"Because controller\.quorum\.voters is not set on this controller"):
        Formatting(CLUSTER, 1, "data").check_voters()
    with pytest.raises(TidegaugeError, match=r"You cannot specify controller\.quorum\.voters and format the node with"):
        dataclasses.replace(DYNAMIC, has_static_voters=True).check_voters()
    for asked in (DYNAMIC, STATIC, Formatting(CLUSTER, 1, "data", is_controller=False)):
        asked.check_voters()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "No voters given."),
        ("x", "No @ found in dynamic voter string."),
        ("@h:1:i", "Invalid @ at beginning of dynamic voter string."),
        ("x@h:1:i", "Failed to parse node id in dynamic voter string."),
        ("-1@h:1:i", "Invalid negative node id -1 in dynamic voter string."),
        ("1@", "No hostname found after node id."),
        ("1@[::1:9", "Hostname began with left bracket, but no right bracket was found."),
        ("1@[::1]9", "Port section must start with a colon."),
        ("3000@localhost", "No colon following hostname could be found."),
        ("1@h:9", "No colon following port could be found."),
        ("1@h:x:i", "Failed to parse port in dynamic voter string."),
        ("1@h:70000:i", "Invalid port 70000 in dynamic voter string."),
        ("1@h:9:i", "Failed to parse directory ID in dynamic voter string."),
        (f"1@h:9:{IDS[0]},1@h:8:{IDS[1]}", "Node id 1 was specified more than once."),
    ],
)
def test_a_list_of_voters_that_cannot_be_read_is_refused(text: str, sentence: str):
    """DynamicVoter.parse and DynamicVoters."""
    with pytest.raises(TidegaugeError, match=re.escape(sentence)):
        parse_initial_voters(text, "CONTROLLER")


def test_an_ipv6_host_stands_in_brackets():
    (voter,) = parse_initial_voters(f"1@[::1]:9093:{IDS[0]}", "CONTROLLER").voters.values()
    assert voter.endpoints == (("CONTROLLER", "::1", 9093),)


def test_a_credential_is_made_of_a_password_or_taken_salted():
    """Both records are those that kafka-storage 4.3.1 wrote for these arguments (RFC 5802, section 3)."""
    salt = b"g3vjscxxtyt51c6n50uy7ea4s"
    made = parse_scram("SCRAM-SHA-256=[name=alice,password=alice-secret]", lambda: salt)
    assert (made.name, made.mechanism, made.salt, made.iterations) == ("alice", 1, salt, 4096)
    assert bytes(made.stored_key)[:4] == bytes([159, 140, 156, 224])
    assert bytes(made.server_key)[:4] == bytes([89, 156, 34, 156])
    text = 'SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]'
    salted = parse_scram(text, lambda: pytest.fail("the argument names a salt"))
    assert (salted.mechanism, salted.salt, salted.iterations) == (2, b"7q", 8192)
    assert bytes(salted.stored_key)[:4] == bytes([113, 118, 163, 73])
    assert bytes(salted.server_key)[:4] == bytes([76, 97, 124, 14])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("alice", "Failed to find equals sign in SCRAM argument 'alice'"),
        ("SCRAM-SHA-1=[name=a,password=x]", "The add-scram mechanism SCRAM-SHA-1 is not supported."),
        ("SCRAM-SHA-256=name=a", "Expected configuration string to start with ["),
        ("SCRAM-SHA-256=[name=a", "Expected configuration string to end with ]"),
        ("SCRAM-SHA-256=[name]", "No equals sign found in a SCRAM component"),
        ("SCRAM-SHA-256=[password=x]", "You must supply 'name' to add-scram"),
        ("SCRAM-SHA-256=[name=a]", "You must supply one of 'password' or 'saltedpassword' to add-scram"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YCE=]", "You must supply 'salt' with 'saltedpassword' to add-scram"),
        ("SCRAM-SHA-256=[name=a,password=x,b=c]", "Unknown SCRAM configurations: b"),
        ("SCRAM-SHA-256=[name=a,password=x,salt=?]", "Failed to decode given salt"),
        ("SCRAM-SHA-256=[name=a,password=x,iterations=y]", "Failed to parse iterations count: y"),
        ("SCRAM-SHA-256=[name=a,password=x,iterations=1]", "must be >= 4096 for add-scram using SCRAM_SHA_256"),
        ("SCRAM-SHA-512=[name=a,password=x,iterations=16385]", "must be <= 16384 for add-scram using SCRAM_SHA_512"),
    ],
)
def test_a_credential_that_cannot_be_read_is_refused_without_its_password(text: str, sentence: str):
    """ScramParser of kafka-storage 4.3.1."""
    with pytest.raises(TidegaugeError, match=re.escape(sentence)):
        parse_scram(text, lambda: b"salt")


def test_what_is_reported_never_shows_the_keys_of_a_credential():
    """Kafka's tool prints salt and keys; a terminal's history is no place for them."""
    record = parse_scram("SCRAM-SHA-256=[name=alice,password=alice-secret]", lambda: b"salt-salt-salt")
    sentence = bootstrap_sentence(STATIC.levels(), [record])
    assert "FeatureLevelRecord(name='metadata.version', featureLevel=21) at version 0" in sentence
    assert "name='alice', mechanism=1, salt=[hidden]" in sentence
    assert "metadataVersionLevel=21, source=format command" in sentence


def test_the_directory_of_another_cluster_or_node_is_refused():
    """MetaPropertiesEnsemble.verify."""
    with pytest.raises(TidegaugeError, match=r"Invalid cluster\.id in: f\. Expected b, but read a") as caught:
        check_owner(NodeProperties(1, "a", None), "f", "b", 1)
    assert caught.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    with pytest.raises(TidegaugeError, match=r"Stored node id 1 doesn't match previous node id 2 in f\."):
        check_owner(NodeProperties(1, "a", None), "f", "a", 2)
    check_owner(NodeProperties(None, None, None), "f", "a", 2)
