"""Facts about settings: what a topic and a broker have, and which values are refused with which sentence."""

from __future__ import annotations

from typing import Any

from tests.wire_responses.admin import TIMEOUT_MS, topic
from tests.wire_responses.probe import Probe, message
from tests.wire_responses.records import TOPIC

TOPIC_KIND, BROKER_KIND, LOGGER_KIND, CLIENT_METRICS_KIND, GROUP_KIND = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
VALUES = (
    "",
    "x",
    "true",
    "-2",
    "-1",
    "0",
    "1",
    "13",
    "14",
    "1.5",
    " 7 ",
    "2147483647",
    "2147483648",
    "9" * 19,
    "1_0",
    "+1",
)
"""Tried as the value of every topic setting."""
WORDS = {
    "cleanup.policy": ("compact", "delete", "compact,delete", "delete,delete", "none", "Compact"),
    "compression.type": ("gzip", "snappy", "lz4", "zstd", "uncompressed", "producer", "GZIP", "none"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "createtime"),
    "leader.replication.throttled.replicas": ("*", "0:1", "0:1,1:2", "0", "a:b", "0:1,"),
    "message.format.version": ("0.9.0", "2.8-IV1", "3.0", "3.9", "4.0", "9.9"),
    "compression.gzip.level": ("-1", "0", "1", "9", "10"),
    "compression.lz4.level": ("0", "1", "17", "18"),
    "compression.zstd.level": ("-131072", "-131073", "22", "23"),
    "segment.bytes": ("13", "14"),
    "min.cleanable.dirty.ratio": ("-0.1", "0.5", "1", "1.1", "NaN", ".5", "5e-1", "0.5f", "0_1.0", "inf"),
    "unclean.leader.election.enable": ("TRUE", "yes", "false"),
}
"""Further values of settings that have words or bounds of their own."""
PLACES = ("broker.id", "log.dir", "listener", "zookeeper.connect", "port", "host", "metric.reporters")
"""Broker settings whose values belong to the cluster that is asked."""


def describe(kind: int, name: str, keys: list[str] | None = None, **more: Any) -> Any:
    """Return a DescribeConfigs request for one resource."""
    wanted = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}]
    return message("DescribeConfigs", resources=wanted, **more)


def incremental(kind: int, name: str, *changes: tuple[str, int, str | None], only: bool = True) -> Any:
    """Return an IncrementalAlterConfigs request for one resource."""
    configs = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
    wanted = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    return message("IncrementalAlterConfigs", validate_only=only, resources=wanted)


def said(response: Any) -> Any:
    """Return error and message of each resource."""
    return [(one.error_code, one.error_message) for one in response.responses]


def described(probe: Probe) -> None:
    """Every setting of a topic and of a broker."""
    probe.say("settings")
    full = {"include_synonyms": True, "include_documentation": True}
    for one in probe.ask(0, 4, describe(TOPIC_KIND, TOPIC, **full)).results[0].configs:
        probe.note(f"topic setting {one.name}", _setting(one))
        probe.note(f"topic setting {one.name} is explained", bool(one.documentation))
    for one in probe.ask(0, 4, describe(BROKER_KIND, "0", **full)).results[0].configs:
        if not one.name.startswith(PLACES):
            probe.note(f"broker setting {one.name}", _setting(one))
    for version in range(5):
        request = describe(TOPIC_KIND, TOPIC, ["retention.ms", "nope", "cleanup.policy"], **full)
        probe.case(f"DescribeConfigs v{version}", 0, version, request, _sorted)
    cases = {
        "unknown topic": describe(TOPIC_KIND, "nope"),
        "topic name": describe(TOPIC_KIND, "a b"),
        "empty topic name": describe(TOPIC_KIND, ""),
        "no keys": describe(TOPIC_KIND, TOPIC, []),
        "another broker": describe(BROKER_KIND, "1"),
        "broker that is no number": describe(BROKER_KIND, "x"),
        "unknown kind": describe(9, "x"),
        "kind 0": describe(0, "x"),
        "a client metrics subscription": describe(CLIENT_METRICS_KIND, "x"),
        "a group": describe(GROUP_KIND, "x"),
    }
    for name, request in cases.items():
        probe.case(f"DescribeConfigs {name}", 0, 4, request, _sorted)
    both = describe(TOPIC_KIND, "nope")
    both.resources = [*both.resources, *describe(TOPIC_KIND, TOPIC, ["retention.ms"]).resources]
    probe.case("DescribeConfigs of two, one unknown", 0, 4, both, _sorted)


def _setting(one: Any) -> Any:
    synonyms = [(item.name, item.value, item.source) for item in one.synonyms]
    return one.value, one.config_source, one.config_type, one.read_only, one.is_sensitive, synonyms


def _sorted(found: Any) -> Any:
    return [
        (
            one.error_code,
            one.error_message,
            one.resource_type,
            one.resource_name,
            sorted((item.name, str(item.value), item.config_source, item.config_type) for item in one.configs),
        )
        for one in sorted(found.results, key=lambda one: (one.resource_type, one.resource_name))
    ]


def bounds(probe: Probe) -> None:
    """Values of every topic setting, good and bad."""
    probe.say("values of topic settings")
    names = [one.name for one in probe.ask(0, 4, describe(TOPIC_KIND, TOPIC)).results[0].configs]
    for name in sorted(names):
        for value in dict.fromkeys((*VALUES, *WORDS.get(name, ()))):
            request = incremental(TOPIC_KIND, TOPIC, (name, SET, value))
            probe.case(f"topic setting {name}={value}", probe.controller, 1, request, said)


def alterations(probe: Probe) -> None:
    """IncrementalAlterConfigs and AlterConfigs."""
    probe.say("alterations of settings")
    name = "probe-set"
    wanted = topic(name, -1, -1, assignments={0: [0, 1, 2]}, configs={"retention.ms": "5"})
    probe.ask(probe.controller, 7, message("CreateTopics", timeout_ms=TIMEOUT_MS, topics=[wanted]))
    probe.topic(name)
    cases = {
        "append to no list": incremental(TOPIC_KIND, name, ("retention.ms", APPEND, "1")),
        "subtract from no list": incremental(TOPIC_KIND, name, ("retention.ms", SUBTRACT, "1")),
        "unknown setting": incremental(TOPIC_KIND, name, ("nope", SET, "1")),
        "deletion of an unknown setting": incremental(TOPIC_KIND, name, ("nope", DELETE, None)),
        "unknown topic": incremental(TOPIC_KIND, "nope", ("retention.ms", SET, "1")),
        "topic name": incremental(TOPIC_KIND, "a b", ("retention.ms", SET, "1")),
        "empty topic name": incremental(TOPIC_KIND, "", ("retention.ms", SET, "1")),
        "a key twice": incremental(TOPIC_KIND, name, ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
        "null value": incremental(TOPIC_KIND, name, ("retention.ms", SET, None)),
        "two null values": incremental(TOPIC_KIND, name, ("retention.ms", SET, None), ("segment.ms", SET, None)),
        "unknown operation": incremental(TOPIC_KIND, name, ("retention.ms", 9, "1")),
        "no changes": incremental(TOPIC_KIND, name),
        "append": incremental(TOPIC_KIND, name, ("cleanup.policy", APPEND, "compact")),
        "append of what is there": incremental(TOPIC_KIND, name, ("cleanup.policy", APPEND, "delete")),
        "subtract the last": incremental(TOPIC_KIND, name, ("cleanup.policy", SUBTRACT, "delete")),
        "subtract what is not there": incremental(TOPIC_KIND, name, ("cleanup.policy", SUBTRACT, "compact")),
        "append what is no value": incremental(TOPIC_KIND, name, ("cleanup.policy", APPEND, "nope")),
        "good and bad together": incremental(TOPIC_KIND, name, ("retention.ms", SET, "1"), ("segment.ms", SET, "x")),
        "min above max lag": incremental(
            TOPIC_KIND, name, ("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")
        ),
        "remote storage": incremental(TOPIC_KIND, name, ("remote.storage.enable", SET, "true")),
        "another broker": incremental(BROKER_KIND, "9", ("log.cleaner.threads", SET, "1")),
        "broker that is no number": incremental(BROKER_KIND, "x", ("log.cleaner.threads", SET, "1")),
        "read-only broker setting": incremental(BROKER_KIND, "", ("zookeeper.connect", SET, "x")),
        "per-broker setting for all": incremental(BROKER_KIND, "", ("ssl.keystore.location", SET, "x")),
        "bad value of a broker": incremental(BROKER_KIND, "", ("log.cleaner.threads", SET, "x")),
        "broker value out of bounds": incremental(BROKER_KIND, "", ("log.cleaner.threads", SET, "-1")),
        "good value of all brokers": incremental(BROKER_KIND, "", ("log.cleaner.threads", SET, "2")),
        "unknown kind": incremental(9, "x", ("a", SET, "1")),
        "kind 0": incremental(0, "x", ("a", SET, "1")),
    }
    for label, request in cases.items():
        for version in (0, 1) if label == "unknown setting" else (1,):
            suffix = f" v{version}" if label == "unknown setting" else ""
            probe.case(f"IncrementalAlterConfigs {label}{suffix}", 0, version, request, said)
    twice = incremental(TOPIC_KIND, name, ("retention.ms", SET, "1"))
    twice.resources = [*twice.resources, *twice.resources]
    probe.case("IncrementalAlterConfigs a resource twice", 0, 1, twice, said)
    change = incremental(TOPIC_KIND, name, ("retention.ms", SET, "99"), only=False)
    probe.case("IncrementalAlterConfigs at another broker", probe.other, 1, change, said)
    _replacements(probe, name)


def _replacements(probe: Probe, name: str) -> None:
    def alter(kind: int, of: str, *, only: bool = True, **values: str | None) -> Any:
        configs = [{"name": key.replace("__", "."), "value": value} for key, value in values.items()]
        wanted = [{"resource_type": kind, "resource_name": of, "configs": configs}]
        return message("AlterConfigs", validate_only=only, resources=wanted)

    cases = {
        "unknown setting": alter(TOPIC_KIND, name, nope="1"),
        "bad value": alter(TOPIC_KIND, name, retention__ms="x"),
        "null value": alter(TOPIC_KIND, name, retention__ms=None),
        "unknown topic": alter(TOPIC_KIND, "nope", retention__ms="1"),
        "no settings": alter(TOPIC_KIND, name),
        "read-only broker setting": alter(BROKER_KIND, "", zookeeper__connect="x"),
        "unknown kind": alter(9, "x", a="1"),
    }
    for label, request in cases.items():
        probe.case(f"AlterConfigs {label}", 0, 2, request, said)
    twice = alter(TOPIC_KIND, name, retention__ms="1")
    twice.resources = [*twice.resources, *twice.resources]
    probe.case("AlterConfigs a resource twice", 0, 2, twice, said)
    probe.case("AlterConfigs of one setting", 0, 2, alter(TOPIC_KIND, name, only=False, segment__ms="77"), said)
    request = describe(TOPIC_KIND, name, ["retention.ms", "segment.ms"])
    probe.wait_for(lambda: _is_dynamic(probe.ask(0, 4, request)))
    probe.case("AlterConfigs has replaced all settings", 0, 4, request, _sorted)


def _is_dynamic(found: Any) -> bool:
    return any(item.value == "77" for item in found.results[0].configs)
