"""The page's view model: facts to JSON, and what changed (lab/tidegauge_lab/watch/view.py)."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from tidegauge.partition import INTERNAL_TOPICS, TopicPartition
from tidegauge.v1 import common_pb2, metadata_pb2
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo, from_response
from tidegauge_lab.cli.cluster_lines import held_line
from tidegauge_lab.timeline.event_lines import event_line
from tidegauge_lab.watch.facts import BrokerFacts, Facts, QuorumFacts, ZooKeeperFacts
from tidegauge_lab.watch.page_files import SCRIPTS, page_file
from tidegauge_lab.watch.sources import Silence
from tidegauge_lab.watch.view import difference, session_text, status_view, view_of

AT = TopicPartition("orders", 0)
ZOOKEEPER = ZooKeeperFacts("127.0.0.1:2181", "up", managed=True, responds=True)


def metadata(
    controller: int | None, controller_epoch: int, *, leader: int | None, epoch: int, isr: list[int], partition_epoch=0
) -> ClusterInfo:
    part = metadata_pb2.PartitionMetadata(
        partition=0, leader_id=leader, leader_epoch=epoch, replicas=[1, 2], isr=isr, partition_epoch=partition_epoch
    )
    topic = metadata_pb2.TopicMetadata(name="orders", partitions=[part])
    return from_response(
        metadata_pb2.MetadataResponse(controller_id=controller, controller_epoch=controller_epoch, topics=[topic])
    )


def replica(role: str, leo: int, hw: int, **more: Any) -> metadata_pb2.ReplicaDescription:
    more.setdefault("epochs", [metadata_pb2.EpochEntry(leader_epoch=0, start_offset=0)])
    return metadata_pb2.ReplicaDescription(
        topic="orders", partition=0, role=role, log_end_offset=leo, high_watermark=hw, **more
    )


def broker(broker_id: int, **more: Any) -> BrokerFacts:
    more.setdefault("responded", more.get("replicas") is not None)
    return BrokerFacts(broker_id, f"127.0.0.1:{9090 + broker_id}", more.pop("state", "up"), **more)


def healthy() -> Facts:
    known = metadata(1, 3, leader=1, epoch=0, isr=[1, 2])
    remote = metadata_pb2.RemoteReplica(broker_id=2, log_end_offset=18)
    leader = replica("leader", 20, 18, isr=[1, 2], remote_replicas=[remote], leader_epoch=0)
    return Facts(
        "data",
        [
            broker(1, pid=11, metadata=known, replicas=[leader], session=0xA1, session_state="connected"),
            broker(2, pid=12, metadata=known, replicas=[replica("follower", 18, 15)], session=0xA2),
        ],
        ZOOKEEPER,
        switchable=True,
    )


def test_a_healthy_partition_with_its_replicas_as_they_are():
    view = view_of(healthy())
    part = view["partitions"]["orders-0"]
    assert (part["leader"], part["leaderEpoch"], part["isr"], part["osr"]) == (1, 0, [1, 2], [])
    assert (part["low"], part["high"]) == (0, 20)
    assert part["replicas"]["1"] == {
        "isr": True, "held": False, "keptBy": None, "old": False, "role": "leader", "epoch": 0, "logStart": 0,
        "hw": 18, "lso": None, "leo": 20, "epochs": [[0, 0, 20]], "bytes": 0, "knows": {"2": 18},
    }  # fmt: skip
    assert part["replicas"]["2"]["hw"] == 15
    assert part["replicas"]["2"]["knows"] == {}, "only a leader records remote LEOs"
    assert (view["controller"], view["controllerEpoch"], view["switchable"]) == (1, 3, True)
    assert [(one["controller"], one["leads"], one["replicas"]) for one in view["brokers"].values()] == [
        (True, 1, 1),
        (False, 0, 1),
    ]
    assert view["brokers"]["1"]["sessionText"] == "session 0xa1"
    assert json.loads(json.dumps(view)) == view


def test_status_names_the_partitions_where_transactions_hold_readers():
    """By the leader's words: a follower's high watermark is a fetch round late."""
    assert status_view(healthy().brokers) == {"groups": [], "held_readers": []}
    known = metadata(1, 3, leader=1, epoch=0, isr=[1, 2])
    leader = replica("leader", 20, 18, isr=[1, 2], leader_epoch=0, last_stable_offset=11)
    follower = replica("follower", 18, 15, last_stable_offset=9)
    held = {"topic": "orders", "partition": 0, "leader": 1, "last_stable_offset": 11, "high_watermark": 18}
    brokers = [broker(1, metadata=known, replicas=[leader]), broker(2, replicas=[follower])]
    assert status_view(brokers)["held_readers"] == [held]
    assert held_line(held) == (
        "Partition orders-0  readers of committed records are held at the LSO 11, 7 below the HW 18"
    )
    leader.last_stable_offset = 18
    assert status_view(brokers)["held_readers"] == []


def test_the_newest_state_counts_wherever_it_stands():
    """Rule 2: caches differ for a while; higher leader epoch, then partition epoch, whoever says so."""
    old = metadata(1, 3, leader=1, epoch=0, isr=[1, 2])
    new = metadata(2, 4, leader=2, epoch=1, isr=[2])
    facts = Facts("data", [broker(1, metadata=old), broker(2, metadata=new)], ZOOKEEPER)
    view = view_of(facts)
    part = view["partitions"]["orders-0"]
    assert (part["leader"], part["leaderEpoch"], part["isr"], part["osr"]) == (2, 1, [2], [1])
    assert (view["controller"], view["controllerEpoch"]) == (2, 4)

    itself = replica("leader", 5, 5, leader_epoch=1, partition_epoch=7, isr=[2, 1])
    facts = replace(facts, brokers=[facts.brokers[0], broker(2, metadata=new, replicas=[itself])])
    assert view_of(facts)["partitions"]["orders-0"]["isr"] == [2, 1], "the leader's ISR is ahead of the metadata"

    facts = replace(facts, brokers=[broker(2, metadata=new, replicas=[itself], responded=False)])
    assert view_of(facts)["partitions"]["orders-0"]["isr"] == [2], "what a dead leader said last does not count"


def test_of_equally_new_metadata_the_controllers_own_names_the_topics():
    """Rule 1."""
    without = ClusterInfo(controller_id=2, controller_epoch=4)
    with_topic = metadata(2, 4, leader=2, epoch=1, isr=[2])
    for order in ([1, 2], [2, 1]):
        responses = {1: with_topic, 2: without}
        facts = Facts("data", [broker(one, metadata=responses[one]) for one in order], ZOOKEEPER)
        assert view_of(facts)["partitions"] == {}


def test_a_dead_broker_keeps_its_replica_as_last_seen():
    """Rule 4; the leader is still the one that the brokers know (rule 3)."""
    facts = healthy()
    dead = replace(facts.brokers[0], state="down", pid=None, metadata=None, responded=False)
    view = view_of(replace(facts, brokers=[dead, facts.brokers[1]]))
    assert view["partitions"]["orders-0"]["leader"] == 1
    assert view["partitions"]["orders-0"]["replicas"]["1"]["old"]
    assert view["partitions"]["orders-0"]["replicas"]["1"]["leo"] == 20
    assert view["brokers"]["1"]["sessionText"] == "session 0xa1 has not ended yet"
    never = broker(1, state="down")
    view = view_of(replace(facts, brokers=[never, facts.brokers[1]]))
    assert view["partitions"]["orders-0"]["replicas"]["1"]["role"] == "unknown"
    both = [replace(one, metadata=None, responded=False) for one in facts.brokers]
    assert list(view_of(replace(facts, brokers=both))["partitions"]) == ["orders-0"], "all down: what was seen last"


@pytest.mark.parametrize(
    ("session", "state", "heard", "responds", "text"),
    [
        (0xA, "up", "connected", True, "session 0xa"),
        (0xA, "up", "suspended", True, "session 0xa, suspended"),
        (0xA, "paused", "connected", True, "session 0xa has not ended yet"),
        (None, "down", "connected", True, "no session"),
        (None, "up", "lost", True, "not registered"),
        (None, "up", "suspended", False, "session suspended"),
        (None, "up", "", False, "session not known"),
        (None, "down", "connected", False, "session not known"),
        (None, "paused", "connected", False, "session not known"),
    ],
)
def test_sessions_in_words(session: int | None, state: str, heard: str, responds: bool, text: str):
    facts = broker(1, state=state, session=session, session_state=heard)
    assert session_text(facts, zookeeper_responds=responds) == text


def test_what_is_waited_for_counts_down_in_words():
    """The controller learns of a death by the end of its membership, and by nothing else."""
    facts = healthy()

    def waiting(left_ms: float | None, **more: Any) -> str:
        dead = replace(facts.brokers[0], state="down", session_left_ms=left_ms, **more)
        return str(view_of(replace(facts, brokers=[dead, facts.brokers[1]]))["waiting"])

    assert view_of(facts)["waiting"] == ""
    assert waiting(2001.0).startswith(
        "Broker 1 is down, and its membership of the cluster ends in 3 s at the latest. Until then"
    )
    dead = [replace(one, state="paused", session_left_ms=2001.0) for one in facts.brokers]
    assert view_of(replace(facts, brokers=dead))["waiting"].endswith(
        "Until then no other broker becomes the controller: no leader is elected, and no ISR changes."
    ), "one of them is the controller"
    other = replace(facts.brokers[1], state="paused", session_left_ms=2001.0)
    assert view_of(replace(facts, brokers=[facts.brokers[0], other]))["waiting"].endswith(
        "Until then the controller counts it as alive."
    )
    assert "is about to end" in waiting(-5.0)
    assert "has not ended yet" in waiting(None)
    assert waiting(2001.0, session=None) == "", "it has ended"


def test_a_partition_says_for_whose_session_it_waits():
    """The controller learns of a death by the end of the session; the leader sees a lag, and may be the quicker one."""
    facts = healthy()

    def waiting(place: int, left_ms: float = 2001.0, **more: Any) -> str:
        brokers = list(facts.brokers)
        brokers[place] = replace(brokers[place], state="down", session_left_ms=left_ms, **more)
        return str(view_of(replace(facts, brokers=brokers))["partitions"]["orders-0"]["waiting"])

    assert view_of(facts)["partitions"]["orders-0"]["waiting"] == ""
    assert (
        waiting(0)
        == "the membership of broker 1 ends in 3 s at the latest; until then the controller counts it as alive"
    )
    keeps = "the ISR keeps it until then, or until a lag of replica.lag.time.max.ms"
    assert waiting(1) == f"the membership of broker 2 ends in 3 s at the latest; {keeps}"
    assert waiting(1, -1.0) == f"the membership of broker 2 is about to end; {keeps}"
    assert waiting(0, session=None) == "", "it has ended"
    silent = replace(facts, zookeeper=replace(facts.zookeeper, responds=False))
    down = replace(silent, brokers=[replace(facts.brokers[0], state="down"), facts.brokers[1]])
    assert view_of(down)["partitions"]["orders-0"]["waiting"] == "", "nobody knows of sessions"


def test_the_rest_of_a_session_counts_from_when_its_owner_fell_silent():
    silence = Silence()
    assert silence.left_ms([], 10.0, 4000) == {}
    assert silence.left_ms([1], 11.0, 4000) == {1: 4000}
    assert silence.left_ms([1, 2], 12.5, 4000) == {1: 2500, 2: 4000}
    assert silence.left_ms([2], 13.0, 4000) == {2: 3500}
    assert silence.left_ms([1], 14.0, 4000) == {1: 4000}, "it was back meanwhile"


def test_a_new_active_controller_gives_each_broker_a_whole_timeout():
    """ClusterControlManager.activate counts every broker that is not fenced from then on."""
    silence = Silence()
    assert silence.left_ms([1], 10.0, 4000, epoch=1) == {1: 4000}
    assert silence.left_ms([1], 12.0, 4000, epoch=1) == {1: 2000}
    assert silence.left_ms([1, 2], 13.0, 4000, epoch=2) == {1: 4000, 2: 4000}
    assert silence.left_ms([1, 2], 14.0, 4000, epoch=2) == {1: 3000, 2: 3000}


def test_in_kraft_mode_a_silent_broker_is_waited_for_until_the_newest_metadata_lack_it():
    """Members are the brokers that are not fenced; a quorum elects its next leader without a broker's end."""
    known = replace(
        metadata(1, 3, leader=1, epoch=0, isr=[1, 2]), brokers={1: BrokerInfo(1, "a", 1), 2: BrokerInfo(2, "a", 2)}
    )
    fenced = replace(known, brokers={2: BrokerInfo(2, "a", 2)}, controller_epoch=4)
    dead = broker(1, state="down", session_left_ms=2001.0)

    def view(metadata: ClusterInfo | None, **quorum: Any) -> Any:
        facts = QuorumFacts(**({"leader": 3000, "epoch": 3, "controllers": ()} | quorum))
        return view_of(Facts("data", [dead, broker(2, metadata=metadata)], quorum=facts))

    waiting = "Broker 1 is down, and its membership of the cluster ends in 3 s at the latest. Until then"
    assert view(known)["waiting"] == f"{waiting} the controller counts it as alive."
    assert view(known)["partitions"]["orders-0"]["waiting"] == (
        "the membership of broker 1 ends in 3 s at the latest; until then the controller counts it as alive"
    )
    assert view(known, leader=1)["waiting"].endswith("counts it as alive."), "a node that was a controller too"
    assert view(fenced)["waiting"] == ""
    assert view(None)["waiting"] == ""


def test_epochs_are_stretches_of_the_log():
    """An epoch without records is shown too: a new leader without any write."""
    entries = [metadata_pb2.EpochEntry(leader_epoch=e, start_offset=o) for e, o in [(0, 0), (2, 10), (3, 30)]]
    log = replica("leader", 30, 30, log_start_offset=4, epochs=entries)
    part = view_of(Facts("data", [broker(1, replicas=[log])], ZOOKEEPER))["partitions"]["orders-0"]
    assert part["replicas"]["1"]["epochs"] == [[0, 4, 10], [2, 10, 30], [3, 30, 30]]
    assert part["low"] == 4
    fresh = replica("follower", 0, 0, epochs=[])
    part = view_of(Facts("data", [broker(1, replicas=[fresh])], ZOOKEEPER))["partitions"]["orders-0"]
    assert part["replicas"]["1"]["epochs"] == []


def test_holds_and_faults_stand_at_their_broker():
    facts = healthy()
    held = replace(facts.brokers[1], held={AT: 1}, faults=["calls from clients: partitioned"])
    view = view_of(replace(facts, brokers=[facts.brokers[0], held]))
    assert view["partitions"]["orders-0"]["replicas"]["2"]["held"]
    assert view["partitions"]["orders-0"]["replicas"]["2"]["keptBy"] == 1
    assert view["brokers"]["2"]["faults"] == ["calls from clients: partitioned"]
    assert view["brokers"]["2"]["held"] == 1


def test_a_difference_names_what_changed_and_nothing_else():
    """Rule 5: a page that applies it has the new view."""
    old = view_of(healthy())
    assert difference(old, view_of(healthy())) == {}
    facts = healthy()
    down = replace(facts.brokers[1], state="down", pid=None)
    new = view_of(replace(facts, brokers=[facts.brokers[0], down]))
    assert difference(old, new) == {
        "waiting": new["waiting"], "brokers": {"2": new["brokers"]["2"]}, "partitions": new["partitions"],
    }, "the partition waits for the same session"  # fmt: skip
    faulty = replace(facts.brokers[1], faults=["sync takes 5 ms"])
    other = view_of(replace(facts, brokers=[facts.brokers[0], faulty]))
    assert difference(old, other) == {"brokers": {"2": other["brokers"]["2"]}}
    gone = {**new, "partitions": {}, "controller": None}
    assert difference(new, gone) == {"controller": None, "partitions": {"orders-0": None}}
    assert difference({}, new) == {key: value for key, value in new.items() if value != {}}


def test_an_event_is_worded_as_in_the_timeline():
    event = {"time_ms": 5, "source": "lab", "kind": "fault", "action": "kill", "process": "broker-1", "cause": "Lab"}
    assert event_line(9, event) == {
        "number": 9, "time": 5, "source": "lab", "partition": "", "kind": "fault", "text": "kill broker 1",
    }  # fmt: skip


def test_an_apache_kafka_broker_is_no_dead_one_whose_session_is_waited_for():
    """It is registered, controls and leads, and none of its replicas can be asked."""
    known = metadata(2, 3, leader=2, epoch=0, isr=[1, 2])
    kafka = BrokerFacts(2, "127.0.0.1:9094", "kafka", session=0xA2)
    facts = replace(healthy(), brokers=[broker(1, metadata=known, replicas=[replica("follower", 5, 5)]), kafka])
    view = view_of(facts)
    assert (view["waiting"], view["controller"]) == ("", 2)
    assert (view["brokers"]["2"]["state"], view["brokers"]["2"]["leads"]) == ("kafka", 1)
    assert view["brokers"]["2"]["sessionText"] == "session 0xa2"
    assert view["partitions"]["orders-0"]["replicas"]["2"]["role"] == "unknown"


def test_transactions_are_those_of_the_event_logs():
    """The page's fold over events knows them; brokers that are only looked at have none to show."""
    open_one = {"id": "copy", "state": "Ongoing"}
    before, after = view_of(healthy(), {"copy": open_one}), view_of(healthy())
    assert before["transactions"] == {"copy": open_one}
    assert difference(after, before) == {"transactions": {"copy": open_one}}
    assert difference(before, after) == {"transactions": {"copy": None}}


@pytest.mark.parametrize("topic", ["orders", *sorted(INTERNAL_TOPICS)])
def test_a_partition_says_whether_its_topic_is_internal(topic: str):
    """The page proposes no internal topic for records, and has this from here: the names are in one place."""
    part = PartitionInfo(topic, 0, leader_id=1, leader_epoch=0, replicas=(1,), isr=(1,))
    known = ClusterInfo(topics={topic: TopicInfo(topic, partitions={0: part})})
    broker = BrokerFacts(1, "127.0.0.1:19093", "up", metadata=known)
    shown = view_of(Facts(name="", brokers=[broker], zookeeper=ZOOKEEPER))["partitions"][f"{topic}-0"]
    assert shown["internal"] is (topic in INTERNAL_TOPICS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_no_script_of_the_page_has_names_of_internal_topics_or_counts_by_hand(script: str):
    """The view names internal topics; ``counted`` of page.js writes singular and plural."""
    text = page_file(script)
    assert [name for name in INTERNAL_TOPICS if name in text] == []
    nouns = "bytes|entries|expectations|members|partitions|records|sessions|steps"
    assert re.findall(rf"\$\{{(?!counted)[^}}]*\}} (?:{nouns})\b", text) == []


def test_in_kraft_mode_fenced_brokers_and_eligible_leaders_are_shown():
    """KIP-631: the metadata have no fenced broker; KIP-966: who may lead without being in the ISR."""
    eligible = metadata_pb2.EligibleLeaders(elr=[2], last_known_elr=[1])
    part = metadata_pb2.PartitionMetadata(
        partition=0, leader_epoch=3, replicas=[1, 2], isr=[], eligible_leaders=eligible
    )
    topic = metadata_pb2.TopicMetadata(name="orders", partitions=[part])
    endpoint = common_pb2.BrokerEndpoint(broker_id=1, host="127.0.0.1", port=9091)
    known = from_response(metadata_pb2.MetadataResponse(brokers=[endpoint], topics=[topic]))
    brokers = [broker(1, metadata=known), broker(2, metadata=known), broker(3, state="down")]
    quorum = QuorumFacts(3000, 5, [{"id": 3000, "role": "leader"}])
    view = view_of(Facts("data", brokers, ZooKeeperFacts(), quorum))
    assert {name: one["fenced"] for name, one in view["brokers"].items()} == {"1": False, "2": True, "3": False}
    shown = view["partitions"]["orders-0"]
    assert (shown["leader"], shown["isr"], shown["elr"], shown["lastKnownLeader"]) == (None, [], [2], [1])
    assert not any(one["fenced"] for one in view_of(Facts("data", brokers, ZOOKEEPER))["brokers"].values())
