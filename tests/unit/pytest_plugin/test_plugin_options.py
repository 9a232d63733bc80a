"""Options, names and evidence of the pytest plugin, without a cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidegauge_lab.pytest_plugin.evidence import MOST_EVENTS, event_lines
from tidegauge_lab.pytest_plugin.options import TidegaugeOptions
from tidegauge_lab.pytest_plugin.plugin import read_options, read_settings, topic_name


def options_of(tmp_path: Path, ini: str, *arguments: str) -> TidegaugeOptions:
    """Return the plugin's options in a project with this ini."""
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{ini}")
    config = pytest.Config.fromdictargs(
        {}, ["--rootdir", str(tmp_path), "-c", str(tmp_path / "pytest.ini"), *arguments]
    )
    return read_options(config)


def test_a_session_gets_three_brokers_unless_it_says_otherwise(tmp_path: Path) -> None:
    assert options_of(tmp_path, "") == TidegaugeOptions(3, "fast", {}, None, keep=False)


def test_ini_says_it_for_a_project(tmp_path: Path) -> None:
    ini = "tidegauge_brokers = 5\ntidegauge_profile = kafka\ntidegauge_zookeeper = zk:2181\n"
    settings = "tidegauge_settings =\n  a.b=1\n  c=x=y\n"
    assert options_of(tmp_path, ini + settings) == TidegaugeOptions(5, "kafka", {"a.b": "1", "c": "x=y"}, "zk:2181")


def test_the_command_line_wins_key_by_key(tmp_path: Path) -> None:
    ini = "tidegauge_brokers = 5\ntidegauge_settings =\n  a=1\n  b=1\n"
    found = options_of(
        tmp_path,
        ini,
        "--tidegauge-brokers",
        "1",
        "--tidegauge-set",
        "b=2",
        "--tidegauge-set",
        "c=3",
        "--tidegauge-keep",
    )
    assert found == TidegaugeOptions(1, "fast", {"a": "1", "b": "2", "c": "3"}, None, keep=True)


@pytest.mark.parametrize("line", ["a", "=1", " =1"])
def test_a_setting_is_a_key_and_a_value(line: str) -> None:
    with pytest.raises(pytest.UsageError, match="K=V"):
        read_settings([line])


def test_a_number_of_brokers_is_a_number(tmp_path: Path) -> None:
    with pytest.raises(pytest.UsageError, match="'three'"):
        options_of(tmp_path, "tidegauge_brokers = three")


@pytest.mark.parametrize(
    ("test", "topic"),
    [("test_a", "test_a"), ("test_a[x/y-é 1]", "test_a-x-y--1"), ("[]", "topic"), ("t" * 300, "t" * 100)],
)
def test_any_test_has_a_legal_topic_name(test: str, topic: str) -> None:
    assert topic_name(test) == topic


def test_being_installed_imports_nothing_heavy() -> None:
    """Rule 1: a session that uses no cluster pays for none."""
    code = (
        "import sys, tidegauge_lab.pytest_plugin.plugin\n"
        "heavy = {'grpc', 'google', 'kazoo', 'aiokafka', 'click', 'yaml', 'pyspark', 'tidegauge', 'tidegauge_client'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_a_report_has_the_last_events_of_the_test_and_its_topics() -> None:
    events = [
        {"time_ms": 500, "source": "broker-0", "kind": "role", "topic": "t", "partition": 0, "cause": "before"},
        {
            "time_ms": 1000,
            "source": "broker-0",
            "kind": "role",
            "topic": "t",
            "partition": 0,
            "cause": "LeaderAndIsr",
            "role": "leader",
            "leader": 1,
            "leader_epoch": 4,
        },
        {"time_ms": 1001, "source": "broker-0", "kind": "role", "topic": "other", "partition": 0, "cause": "C"},
        {
            "time_ms": 1002,
            "logical_time": 7,
            "source": "lab",
            "kind": "fault",
            "cause": "kill",
            "action": "kill",
            "broker": 1,
            "process": "broker-1",
        },
    ]
    assert event_lines(events, 1000, ["t"]) == [
        "00:00:01.000 broker-0 t-0      leads, epoch 4 (LeaderAndIsr)",
        "00:00:01.002 lab      -        kill broker 1",
    ]
    assert len(event_lines(events * 100, 0, [])) == MOST_EVENTS
