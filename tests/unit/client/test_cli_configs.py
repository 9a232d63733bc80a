"""describe-config and alter-config without a cluster: kafka-configs' words and lines, usage before contact."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge_client.admin_configs import ConfigEntry, ConfigSynonym
from tidegauge_client.cli.configs import Entity, entity_json, entity_lines, entity_of, entry_line, parse_changes
from tidegauge_client.cli.main import run

NOTHING = {
    "entity_type": None,
    "entity_name": None,
    "entity_default": False,
    "topic": None,
    "group": None,
    "broker": None,
    "broker_defaults": False,
}
ENTRIES = [
    ConfigEntry(
        "min.insync.replicas",
        "2",
        "DYNAMIC_TOPIC_CONFIG",
        is_default=False,
        is_read_only=False,
        synonyms=(
            ConfigSynonym("DYNAMIC_TOPIC_CONFIG", "min.insync.replicas", "2"),
            ConfigSynonym("DEFAULT_CONFIG", "min.insync.replicas", "1"),
        ),
    ),
    ConfigEntry("log.retention.ms", None, "DEFAULT_CONFIG", is_default=True, is_read_only=False, synonyms=()),
]


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDEGAUGE_DIR", str(tmp_path))
    monkeypatch.delenv("TIDEGAUGE_BOOTSTRAP_SERVER", raising=False)


@pytest.mark.parametrize(
    ("said", "kind", "entity"),
    [
        ({"entity_type": "topics"}, "topics", None),
        ({"entity_type": "brokers"}, "brokers", None),
        ({"entity_type": "topics", "entity_name": "t"}, "topics", Entity("topics", "t")),
        ({"entity_type": "brokers", "entity_name": "1"}, "brokers", Entity("brokers", "1")),
        ({"entity_type": "brokers", "entity_default": True}, "brokers", Entity("brokers", None)),
        ({"topic": "t"}, "topics", Entity("topics", "t")),
        ({"entity_type": "groups", "entity_name": "g"}, "groups", Entity("groups", "g")),
        ({"group": "g"}, "groups", Entity("groups", "g")),
        ({"broker": 2}, "brokers", Entity("brokers", "2")),
        ({"broker_defaults": True}, "brokers", Entity("brokers", None)),
    ],
)
def test_kafkas_words_for_an_entity(said, kind, entity):
    assert entity_of(**{**NOTHING, **said}) == (kind, entity)


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe-config"],
        ["describe-config", "--entity-type", "clients"],
        ["describe-config", "--entity-name", "t"],
        ["describe-config", "--entity-type", "topics", "--entity-default"],
        ["describe-config", "--entity-type", "topics", "--broker", "1"],
        ["describe-config", "--topic", "t", "--broker", "1"],
        ["describe-config", "--entity-type", "groups"],
        ["describe-config", "--entity-type", "groups", "--entity-default"],
        ["describe-config", "--topic", "t", "--group", "g"],
        ["describe-config", "--entity-type", "brokers", "--entity-name", "one"],
        ["describe-config", "--entity-type", "brokers", "--entity-name", "1", "--entity-default"],
        ["alter-config", "--topic", "t"],
        ["alter-config", "--entity-type", "topics", "--add-config", "retention.ms=1"],
        ["alter-config", "--entity-type", "brokers", "--add-config", "min.insync.replicas=1"],
        ["alter-config", "--topic", "t", "--add-config", "retention.ms"],
        ["alter-config", "--topic", "t", "--add-config", "=1"],
        ["alter-config", "--topic", "t", "--add-config-file", "/nonexistent/file"],
    ],
)
def test_wrong_usage_ends_with_2_before_anything_is_contacted(arguments, capsys):
    assert run(arguments) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "Error: " in streams.err


def test_brackets_hold_commas_together():
    """ConfigCommand.parseConfigsToBeAdded."""
    assert parse_changes(["cleanup.policy=[compact,delete],retention.ms= 5 ", "a=[x],b=y=z,c="]) == {
        "cleanup.policy": "compact,delete",
        "retention.ms": "5",
        "a": "x",
        "b": "y=z",
        "c": "",
    }
    with pytest.raises(ValueError, match='must be in the format "key=val"'):
        parse_changes(["cleanup.policy=compact,delete"])


def test_lines_are_those_of_kafka_configs():
    """ConfigCommand.describeResourceConfig."""
    assert list(entity_lines(Entity("topics", "t"), ENTRIES[:1], everything=False)) == [
        "Dynamic configs for topic t are:",
        "  min.insync.replicas=2 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:min.insync.replicas=2, "
        "DEFAULT_CONFIG:min.insync.replicas=1}",
    ]
    assert list(entity_lines(Entity("brokers", "0"), ENTRIES[1:], everything=True)) == [
        "All configs for broker 0 are:",
        "  log.retention.ms=null sensitive=false synonyms={}",
    ]
    assert list(entity_lines(Entity("brokers", None), [], everything=False)) == [
        "Default configs for brokers in the cluster are:"
    ]


def test_json_has_the_values_by_name_and_all_that_is_known():
    shown = entity_json(Entity("topics", "t"), ENTRIES)
    assert shown["configs"] == {"min.insync.replicas": "2", "log.retention.ms": None}
    assert shown["entries"][0] == {
        "name": "min.insync.replicas",
        "value": "2",
        "source": "DYNAMIC_TOPIC_CONFIG",
        "is_default": False,
        "is_read_only": False,
        "is_sensitive": False,
        "synonyms": [
            {"source": "DYNAMIC_TOPIC_CONFIG", "name": "min.insync.replicas", "value": "2"},
            {"source": "DEFAULT_CONFIG", "name": "min.insync.replicas", "value": "1"},
        ],
    }


def test_a_secret_is_named_and_not_shown() -> None:
    """As kafka-configs.sh shows settings of the type PASSWORD."""
    synonyms = (ConfigSynonym("STATIC_BROKER_CONFIG", "ssl.keystore.key", ""),)
    entry = ConfigEntry("ssl.keystore.key", None, "STATIC_BROKER_CONFIG", False, True, synonyms)
    assert entry_line(entry) == (
        "  ssl.keystore.key=null sensitive=true synonyms={STATIC_BROKER_CONFIG:ssl.keystore.key=null}"
    )
    assert entity_json(Entity("brokers", "0"), [entry])["entries"][0]["is_sensitive"] is True
