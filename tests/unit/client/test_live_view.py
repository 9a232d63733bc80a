"""``describe-topic --watch`` on a terminal, and ``describe-cluster``, within 80 columns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click import style, unstyle

from tidegauge_client.cli.describe import _repaint, broker_rows
from tidegauge_client.live_view import WIDTH, screen, shortened, view
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo
from tidegauge_client.topic_description import ReplicaState, TopicDescription

PART = PartitionInfo("orders", 0, 1, 3, (1, 2, 0), (1, 2))
LOST = PartitionInfo("orders", 1, None, 4, (2, 0, 1), (2,))
STATES = [
    ReplicaState(1, "leader", 1_234_567, 1_234_560, 0, in_isr=True, epochs=[(e, e * 1000) for e in range(9)]),
    ReplicaState(2, "follower", 1_234_560, 1_234_560, 0, in_isr=True, epochs=[(0, 0)]),
    ReplicaState(0),
]
TOPIC = TopicDescription(TopicInfo("orders", "id", {0: PART, 1: LOST}), (), {0: STATES, 1: [ReplicaState(2)]})


def shown(*, replicas: bool) -> list[str]:
    return [unstyle(line) for line in view([(TOPIC, [PART, LOST])], replicas=replicas)]


def test_partitions_are_a_line_each() -> None:
    assert shown(replicas=False) == [
        "orders  (2 partitions)",
        "  0    leader 1  epoch 3  ISR 1,2  OSR 0  Replicas 1,2,0",
        "  1    no leader  epoch 4  ISR 2  OSR 0,1  Replicas 2,0,1",
    ]


def test_replicas_stand_under_their_partition_within_80_columns() -> None:
    lines = shown(replicas=True)
    assert max(map(len, lines)) <= WIDTH
    leader, follower, unknown = (line.split() for line in lines[3:6])
    assert lines[1].split() == ["BROKER", "ROLE", "ISR", "LOG", "START", "LEO", "HW", "LAG", "EPOCHS"]
    assert leader == ["1", "leader", "yes", "0", "1234567", "1234560", "0", "..", "7@7000", "8@8000"]
    assert follower == ["2", "follower", "yes", "0", "1234560", "1234560", "7", "0@0"]
    assert unknown == ["0", "unknown", "no", "-", "-", "-", "-", "-"]


def test_the_last_stable_offset_stands_where_a_transaction_holds_readers() -> None:
    """Rule 1: beside the HW, with the other columns as for a topic without transactions."""
    held = [replace(state, lso=state.hw and state.hw - 5) for state in STATES]
    lines = [unstyle(line) for line in view([(replace(TOPIC, replicas={0: held}), [PART])], replicas=True)]
    assert lines[1].split()[5:9] == ["LEO", "HW", "LSO", "LAG"]
    assert lines[3].split()[4:8] == ["1234567", "1234560", "1234555", "0"]
    stable = [replace(state, lso=state.hw) for state in STATES]
    assert list(view([(replace(TOPIC, replicas={0: stable}), [PART])], replicas=True))[1].split()[6] == "HW"


@pytest.mark.parametrize(("line", "colour"), [(3, "32"), (4, "33"), (5, "31")])
def test_colours_show_replicas_that_are_well_behind_or_out(line: int, colour: str) -> None:
    assert list(view([(TOPIC, [PART])], replicas=True))[line].startswith(f"\x1b[{colour}m")


def test_a_screen_is_written_over_the_former_and_never_scrolls() -> None:
    assert screen(["a", "b"], 24) == "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J"
    full = screen([str(number) for number in range(50)], 10)
    assert full.count("\n") == 9
    assert "... 42 more lines" in full


def test_a_line_is_never_wider_than_the_terminal_and_keeps_its_colours() -> None:
    line = f"0123{style('456789', fg='red')}abcdef"
    assert shortened(line, 16) == line
    assert shortened(line, 9) == "0123\x1b[31m456\x1b[0m.."
    assert all(len(unstyle(shortened(one, 40))) <= 40 for one in view([(TOPIC, [PART, LOST])], replicas=True))
    assert screen(["0123456789"], 24, 6) == "\x1b[H0123..\x1b[K\n\x1b[J"


def test_no_color_is_honoured_on_a_terminal_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = list(view([(TOPIC, [PART])], replicas=True))
    for value in ("1", ""):
        monkeypatch.setenv("NO_COLOR", value)
        _repaint(lines)
        assert ("\x1b[32m" in capsys.readouterr().out) == (value == "")


def test_brokers_are_listed_with_what_they_lead_and_hold() -> None:
    brokers = {one: BrokerInfo(one, "h", 9000 + one) for one in (1, 2)}
    info = ClusterInfo("c", 1, 1, brokers, {"orders": TOPIC.info})
    assert [tuple(row) for row in broker_rows(info, silent={2})] == [
        (0, None, None, "down", 0, 2),
        (1, "h:9001", None, "up", 1, 2),
        (2, "h:9002", None, "silent", 0, 2),
    ]
