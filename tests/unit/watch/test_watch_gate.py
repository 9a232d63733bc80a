"""Which requests the page's server takes, and which buttons there are (gate.py, actions.py)."""

from __future__ import annotations

import pytest

from tidegauge.errors import TidegaugeError
from tidegauge.faults.actions import HEAL, KILL, PAUSE, START, STEP_FETCH, WantedAction
from tidegauge.faults.requests import FaultRequest
from tidegauge.faults.table import INJECT_DISK, ISOLATE
from tidegauge_lab.watch.actions import Action, TopicAction, read_action
from tidegauge_lab.watch.gate import refusal_of_change, refusal_of_reading

PORT = 19080
GOOD = {
    "host": "127.0.0.1:19080",
    "origin": "http://127.0.0.1:19080",
    "x-tidegauge-token": "secret",
    "content-type": "application/json",
}


def test_the_page_itself_may():
    assert refusal_of_change(GOOD, PORT, "secret") == ""
    local = GOOD | {"host": "localhost:19080", "origin": "http://localhost:19080"}
    assert refusal_of_change(local, PORT, "secret") == ""


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:19080", "127.0.0.1", "127.0.0.1:19081", "[::1]:19080"]
)
def test_another_name_for_this_host_may_not_even_read(host: str):
    """A name that is made to point to 127.0.0.1 (DNS rebinding) must not get the token."""
    assert "127.0.0.1:19080" in refusal_of_reading({"host": host}, PORT)
    assert refusal_of_change(GOOD | {"host": host, "origin": f"http://{host}"}, PORT, "secret")


@pytest.mark.parametrize(
    "origin",
    ["", "null", "http://evil.example", "https://127.0.0.1:19080", "http://127.0.0.1:19081", "http://localhost:19080"],
)
def test_another_site_may_change_nothing(origin: str):
    assert "Origin" in refusal_of_change(GOOD | {"origin": origin}, PORT, "secret")
    assert "Origin" in refusal_of_change({k: v for k, v in GOOD.items() if k != "origin"}, PORT, "secret")


@pytest.mark.parametrize("token", ["", "secre", "secret2", "sécret"])
def test_without_the_token_nothing_changes(token: str):
    assert "load it again" in refusal_of_change(GOOD | {"x-tidegauge-token": token}, PORT, "secret")


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_what_a_form_could_send_is_no_action(kind: str):
    assert "application/json" in refusal_of_change(GOOD | {"content-type": kind}, PORT, "secret")


@pytest.mark.parametrize(
    ("value", "action"),
    [
        ({"action": "kill", "broker": 1}, WantedAction(KILL, 1, {})),
        ({"action": "pause", "broker": "zookeeper"}, WantedAction(PAUSE, "zookeeper", {})),
        (
            {"action": "start", "broker": 1, "held": ["a-0"], "after_power_cut": True},
            WantedAction(START, 1, {"held": ["a-0"], "after_power_cut": True}),
        ),
        (
            {"action": "isolate", "broker": 0, "from": "zookeeper"},
            FaultRequest(0, ISOLATE.wanted({"from": "zookeeper"})),
        ),
        (
            {"action": "isolate", "broker": 0, "from": [1, 2], "delay_ms": 5},
            FaultRequest(0, ISOLATE.wanted({"from": [1, 2], "delay_ms": 5})),
        ),
        (
            {"action": "inject_disk", "broker": 0, "errno": "EIO"},
            FaultRequest(0, INJECT_DISK.wanted({"errno": "EIO"})),
        ),
        ({"action": "heal", "broker": 0}, WantedAction(HEAL, 0, {})),
        (
            {"action": "step_fetch", "broker": 2, "partition": "a-b-3"},
            WantedAction(STEP_FETCH, 2, {"partition": "a-b-3"}),
        ),
        ({"action": "create-topic", "topic": "a", "partitions": 3, "replicas": 2}, TopicAction("a", 3, 2)),
        ({"action": "produce", "topic": "a", "count": 100}, TopicAction("a", count=100)),
    ],
)
def test_actions_are_read(value: object, action: Action):
    assert read_action(value) == action


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        {"action": "down", "broker": 1},
        {"action": "kill"},
        {"action": "kill", "broker": True},
        {"action": "kill", "broker": -1},
        {"action": "kill", "broker": "1"},
        {"action": "isolate", "broker": "zookeeper"},
        {"action": "isolate", "broker": 1},
        {"action": "isolate", "broker": 1, "from": "moon"},
        {"action": "kill", "broker": 1, "hard": True},
        {"action": "start", "broker": 1, "held": "a-0"},
        {"action": "start", "broker": 1, "held": ["a"]},
        {"action": "heal", "broker": "zookeeper"},
        {"action": ["kill"], "broker": 1},
        {"action": "isolate", "broker": 1, "delay_s": 5},
        {"action": "inject_disk", "broker": 1},
        {"action": "isolate", "broker": 1, "from": ["brokers"]},
        {"action": "hold_fetch", "broker": 1},
        {"action": "hold_fetch", "broker": 1, "partition": "orders"},
        {"action": "step_fetch", "broker": 1, "partition": "orders-0", "until": "tomorrow"},
        {"action": "produce", "topic": "a"},
        {"action": "produce", "topic": "a", "count": 0},
        {"action": "produce", "topic": "a", "count": True},
        {"action": "produce", "topic": "a", "count": 10**9},
        {"action": "produce", "topic": "../etc", "count": 1},
        {"action": "create-topic", "topic": "a", "partitions": 3},
        {"action": "create-topic", "topic": "a", "partitions": 3, "replicas": "3"},
        {"action": "create-topic", "topic": "", "partitions": 3, "replicas": 3},
        {"action": "create-topic", "partitions": 3, "replicas": 3},
    ],
)
def test_what_is_no_action_is_refused(value: object):
    with pytest.raises(TidegaugeError, match="INVALID_REQUEST"):
        read_action(value)
