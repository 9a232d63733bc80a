"""The pytest plugin (docs/guide/pytest.md) as a project outside uses it: pytest in processes of its own."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from tests.integration.pytest_sessions import begin, end

from tidegauge_lab.local.processes import look_up

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]


def test_a_project_has_a_cluster_its_state_and_its_faults(zookeeper: str, tmp_path: Path) -> None:
    directory = tmp_path / "project"
    tests = """
        import pytest
        from tidegauge_client import Producer
        from tidegauge_client.sync import SyncProducer

        def test_failover(tidegauge_cluster, tidegauge_topic):
            with SyncProducer(tidegauge_cluster.bootstrap_servers) as producer:
                assert producer.send(tidegauge_topic, b"a").result(150).offset == 0
                dead = tidegauge_cluster.kill_leader(tidegauge_topic)
                assert tidegauge_cluster.wait_leader(tidegauge_topic, other_than=dead, timeout=150) != dead
                assert producer.send(tidegauge_topic, b"b").result(150).offset == 1
            assert tidegauge_cluster.wait_event("role", tidegauge_topic, broker=dead)["topic"] == tidegauge_topic
            tidegauge_cluster.wait_hw(tidegauge_topic, hw=2)
            assert tidegauge_cluster.high_watermark_of(tidegauge_topic) == 2

        @pytest.mark.tidegauge_topic(partitions=2, configs={"min.insync.replicas": "2"})
        def test_the_next_one_finds_it_whole_and_fails(tidegauge_cluster, tidegauge_topic):
            tidegauge_cluster.wait_in_sync(tidegauge_topic, timeout=150)
            assert tidegauge_cluster.describe(tidegauge_topic).min_isr == 2
            tidegauge_cluster.hold_fetch(tidegauge_topic, 1, brokers=[0])
            tidegauge_cluster.isolate(1, "clients", delay_ms=20)
            assert not "on purpose"

        def test_a_wait_in_vain(tidegauge_cluster, tidegauge_topic):
            leader = tidegauge_cluster.leader_of(tidegauge_topic)
            tidegauge_cluster.wait_leader(tidegauge_topic, other_than=leader, timeout=0.1)

        @pytest.mark.asyncio
        async def test_an_asyncio_wait_in_vain(tidegauge_cluster, tidegauge_topic):
            await tidegauge_cluster.aio.wait_hw(tidegauge_topic, hw=9, timeout=0.1)

        def test_faults_inside_brokers(tidegauge_cluster, tidegauge_topic):
            assert [broker.faults for broker in tidegauge_cluster.faults()] == [[], [], []], "the last test's are over"
            leader = tidegauge_cluster.leader_of(tidegauge_topic)
            fault = tidegauge_cluster.inject_error(leader, "Produce", "NOT_ENOUGH_REPLICAS", times=2)
            tidegauge_cluster.inject_disk(leader, delay_ms=20, operation="append", path=tidegauge_topic)
            with SyncProducer(tidegauge_cluster.bootstrap_servers) as producer:
                assert producer.send(tidegauge_topic, b"a").result(150).offset == 0
                assert producer.counters.retries == 2
                assert {one.fault_id: one.met for one in tidegauge_cluster.faults()[leader].faults}[fault.fault_id] == 2
                assert tidegauge_cluster.clear_faults() == 2
                follower = next(one for one in tidegauge_cluster.brokers if one != leader)
                tidegauge_cluster.sync(follower, tidegauge_topic)
                tidegauge_cluster.kill(follower, expire=True)
                assert producer.send(tidegauge_topic, b"b").result(150).offset == 1
            tidegauge_cluster.start(follower, held=[(tidegauge_topic, 0)], after_power_cut=True)
            assert [str(at) for at in tidegauge_cluster.faults()[follower].held] == [f"{tidegauge_topic}-0"]
            tidegauge_cluster.release_fetch(tidegauge_topic, brokers=[follower])
            tidegauge_cluster.wait_in_sync(tidegauge_topic, timeout=150)

        def test_followers_fetch_by_themselves_again(tidegauge_cluster):
            topic = tidegauge_cluster.create_topic("held", assignment=[[0, 1]])
            tidegauge_cluster.hold_fetch(topic, brokers=[1])
            with SyncProducer(tidegauge_cluster.bootstrap_servers, acks=1) as producer:
                producer.send(topic, b"a").result(150)
            assert tidegauge_cluster.high_watermark_of(topic) == 0
            for _ in range(2):
                assert tidegauge_cluster.step_fetch(topic, broker=1).error.name == "NONE"
            assert tidegauge_cluster.high_watermark_of(topic) == 1

        def test_a_partitioned_broker_does_not_hold_up_the_waits(tidegauge_cluster, tidegauge_topic):
            busy = {tidegauge_cluster.leader_of(tidegauge_topic), tidegauge_cluster.controller()}
            cut, *_ = [broker for broker in tidegauge_cluster.brokers if broker not in busy]
            tidegauge_cluster.isolate(cut, "brokers")
            with SyncProducer(tidegauge_cluster.bootstrap_servers, acks=1) as producer:
                producer.send(tidegauge_topic, b"a").result(150)
            rest = [broker for broker in tidegauge_cluster.brokers if broker != cut]
            tidegauge_cluster.wait_isr(tidegauge_topic, isr=rest, timeout=150)
            tidegauge_cluster.heal(cut)
            tidegauge_cluster.wait_in_sync(tidegauge_topic, timeout=150)

        @pytest.mark.asyncio
        async def test_the_same_for_asyncio(tidegauge_cluster, tidegauge_topic):
            cluster = tidegauge_cluster.aio
            await cluster.pause(2, expire=True)
            await cluster.wait_isr(tidegauge_topic, isr=[0, 1], timeout=150)
            with pytest.raises(AssertionError, match="the ISR of .* is [01],[01]"):
                await cluster.wait_isr(tidegauge_topic, isr=[0, 1, 2], timeout=0.2)
            assert cluster.bootstrap_servers == tidegauge_cluster.bootstrap_servers
            assert cluster.bootstrap_server_list == cluster.bootstrap_servers.split(",")
            assert tidegauge_cluster.bootstrap_server_list == cluster.bootstrap_server_list
            async with Producer(cluster.bootstrap_servers) as producer:
                assert (await (await producer.send(tidegauge_topic, b"x"))).offset == 0
            await cluster.resume(2)
            await cluster.wait_in_sync(tidegauge_topic, timeout=150)
    """
    outcomes, printed = end(begin(directory, tests, "--tidegauge-zookeeper", zookeeper))
    assert outcomes == {
        "test_failover": "passed",
        "test_the_next_one_finds_it_whole_and_fails": "failed",
        "test_a_wait_in_vain": "failed",
        "test_an_asyncio_wait_in_vain": "failed",
        "test_faults_inside_brokers": "passed",
        "test_followers_fetch_by_themselves_again": "passed",
        "test_a_partitioned_broker_does_not_hold_up_the_waits": "passed",
        "test_the_same_for_asyncio": "passed",
    }, printed
    # The summary line begins with the actual state, and no line of the library is above it.
    assert re.search(
        r"^FAILED test_it\.py::test_a_wait_in_vain - NotSoError: the leader of \S+ is still \d", printed, re.MULTILINE
    )
    assert re.search(
        r"^FAILED test_it\.py::test_an_asyncio_wait_in_vain - NotSoError: the high watermark", printed, re.MULTILINE
    )
    assert not re.search(r"(pytest_plugin|concurrent|asyncio)/\w+\.py:\d+", printed), printed
    where = r"tidegauge: the cluster -+\ndirectory .*\nlogs, .*\nthe run as a page .*\nbroker 0 127\.0\.0\.1:\d+ up\n"
    assert re.search(where, printed), printed
    assert "broker 1: calls from clients: delayed by 20 ms (met" in printed, printed
    assert re.search(r"broker 0: fetches of test_the_next_one\S+-1 are held", printed), printed
    assert re.search(r"Topic: test_the_next_one\S+\tPartition: 1\tLeader: ", printed), printed
    assert re.search(
        r"^[\d:.]+ broker-\d test_the_next_one\S+-0 leads, epoch \d+ \(LeaderAndIsr\)", printed, re.MULTILINE
    ), printed
    assert "test_failover-1" not in printed, "what another test did says nothing of this one"
    assert not list((directory / "temp").rglob("data")), "data go with the cluster"


@pytest.mark.skipif(importlib.util.find_spec("confluent_kafka") is None, reason="confluent-kafka is not installed")
def test_the_first_consumer_of_a_session_may_come_after_a_kill(zookeeper: str, tmp_path: Path) -> None:
    """A broker creates no ``__consumer_offsets`` while fewer brokers are up than it has replicas."""
    tests = """
        from confluent_kafka import Consumer, Producer

        def test_consumer(tidegauge_cluster, tidegauge_topic):
            dead = tidegauge_cluster.kill_leader(tidegauge_topic, expire=True)
            tidegauge_cluster.wait_leader(tidegauge_topic, other_than=dead, timeout=150)
            servers = {"bootstrap.servers": tidegauge_cluster.kafka_bootstrap_servers}
            producer = Producer(servers)
            producer.produce(tidegauge_topic, b"still here")
            assert producer.flush(150) == 0
            consumer = Consumer(servers | {"group.id": "g", "auto.offset.reset": "earliest"})
            consumer.subscribe([tidegauge_topic])
            message = consumer.poll(120)
            assert message is not None, "there is no coordinator"
            assert message.value() == b"still here"
            consumer.close()
    """
    outcomes, printed = end(begin(tmp_path / "project", tests, "--tidegauge-zookeeper", zookeeper))
    assert outcomes == {"test_consumer": "passed"}, printed


@pytest.mark.long
def test_workers_of_xdist_do_not_meet(zookeeper: str, tmp_path: Path) -> None:
    """Each has brokers, ports and znodes of its own, on one ZooKeeper; both run all tests at the same time."""
    tests = """
        def test_alone(tidegauge_cluster, tidegauge_topic):
            assert tidegauge_cluster.brokers == [0]
            assert tidegauge_cluster.isr_of(tidegauge_topic) == [0]
            assert len(tidegauge_cluster.local.status()["brokers"]) == 1

        def test_no_other_replica_notices(tidegauge_cluster, tidegauge_topic):
            tidegauge_cluster.kill(0)
            tidegauge_cluster.start(0)
            assert tidegauge_cluster.wait_leader(tidegauge_topic, timeout=150) == 0
    """
    options = ("--tidegauge-brokers", "1", "--tidegauge-set", "num.partitions=3", "--tidegauge-zookeeper", zookeeper)
    outcomes, printed = end(begin(tmp_path / "project", tests, "-n", "2", "--dist", "each", *options))
    assert outcomes == {"test_alone": "passed", "test_no_other_replica_notices": "passed"}, printed
    assert "4 passed" in printed, "each test on each of the two workers"


def test_a_cluster_that_cannot_start_says_why_in_a_sentence(tmp_path: Path) -> None:
    directory = tmp_path / "project"
    tests = """
        def test_nothing(tidegauge_cluster):
            pass

        def test_without_a_cluster():
            pass
    """
    outcomes, printed = end(begin(directory, tests, "--tidegauge-set", "no.such.setting=1"))
    assert outcomes == {"test_nothing": "error", "test_without_a_cluster": "passed"}, printed
    errors, _, summary = printed.partition("short test summary")
    assert errors.count("the Tidegauge cluster does not start: ") == 1
    assert errors.count("no.such.setting") == 1, "the sentence is printed once"
    assert "the Tidegauge cluster does not start" in summary
    assert "Traceback" not in printed


def test_sigterm_takes_the_cluster_down(zookeeper: str, tmp_path: Path) -> None:
    """Rule 2 of the plugin: it is how CI ends a session. The test itself sends it to its own session."""
    tests = """
        import os, pathlib, signal, threading

        def test_that_is_broken_off(tidegauge_cluster):
            pathlib.Path("pid").write_text(str(tidegauge_cluster.local.pid_of(0)))
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(300)
    """
    directory = tmp_path / "project"
    running = begin(directory, tests, "--tidegauge-brokers", "1", "--tidegauge-zookeeper", zookeeper)
    _, printed = end(running)
    assert running.returncode == pytest.ExitCode.INTERRUPTED, printed
    facts = look_up(int((directory / "pid").read_text()))
    assert facts is None or facts.gone, "no broker is left"
    assert not list((directory / "temp").rglob("cluster.json"))
