"""The sequence diagram: well-formed, every event in it once, words clear of the next lane, lives and leaders shown."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tidegauge_lab.timeline import drawing
from tidegauge_lab.timeline.choice import Choice
from tidegauge_lab.timeline.drawing import CHARACTER_PX, draw
from tidegauge_lab.timeline.folding import GOOD_ROWS, folded
from tidegauge_lab.timeline.lanes import steps

SVG = "{http://www.w3.org/2000/svg}"


def event(number: int, kind: str, source: str, partition: int | None = 0, **fields: Any) -> dict[str, Any]:
    at = {} if partition is None else {"topic": "orders", "partition": partition}
    return {"time_ms": number, "logical_time": number, "source": source, "kind": kind, **at, **fields}


def story(partition: int = 0) -> list[dict[str, Any]]:
    role = {"cause": "LeaderAndIsr", "leader_epoch": 1}
    return [
        event(1, "broker", "broker-0", None, cause="Lifecycle", state="starting", broker_epoch=-1),
        event(2, "controller", "broker-1", None, cause="Election", state="elected", controller_epoch=1),
        event(
            3, "election", "broker-1", partition, cause="X", strategy="initial", leader=0, leader_epoch=1, isr=[0, 1]
        ),
        event(4, "role", "broker-0", partition, role="leader", leader=0, **role),
        event(5, "role", "broker-1", partition, role="follower", leader=0, **role),
        event(6, "log_end_offset", "broker-0", partition, cause="Produce", old=0, new=1),
        event(7, "log_end_offset", "broker-1", partition, cause="FetchResponse", old=0, new=1),
        event(8, "fault", "lab", None, cause="Lab", action="kill", broker=0, process="broker-0"),
        event(9, "fault", "lab", None, cause="Lab", action="kill", broker=None, process="zookeeper"),
    ]


def picture(events: list[dict[str, Any]], choice: Choice = Choice()) -> ET.Element:  # noqa: B008 - frozen
    return ET.fromstring(draw(events, choice).svg)  # noqa: S314 - our own


def words(root: ET.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text") if text.get("class") == "w"]


def test_each_event_stands_there_once_in_order() -> None:
    assert words(picture(story())) == [
        "starting",
        "broker 1 is the controller, controller epoch 1",
        "elects 0, epoch 1, ISR 0,1",
        "leads, epoch 1",
        "follows broker 0, epoch 1",
        "LEO 0 -> 1",
        "LEO 0 -> 1",
        "kill broker 0",
        "kill zookeeper",
    ]


def test_several_partitions_are_distinguished_by_name() -> None:
    both = words(picture([*story(0), *story(1)]))
    assert "orders-0 leads, epoch 1" in both
    assert "orders-1 leads, epoch 1" in both


def test_words_end_before_the_next_lane_and_within_the_picture() -> None:
    root = picture([*story(0), *story(1)])
    lanes = sorted({float(one.get("x1", "")) for one in root.iter(f"{SVG}line") if one.get("class") in {"l", "d"}})
    ends = [*lanes, float(root.get("width", ""))]
    for text in (one for one in root.iter(f"{SVG}text") if one.get("class") == "w" and one.text != "kill zookeeper"):
        begin = float(text.get("x", ""))
        following = min(end for end in ends if end > begin)
        assert begin + len(text.text or "") * CHARACTER_PX < following


def test_a_lane_is_dotted_before_its_broker_starts_and_after_it_is_killed() -> None:
    root = picture(story())
    lanes = [one for one in root.iter(f"{SVG}line") if one.get("class") in {"l", "d"}]
    of_broker_0 = [one for one in lanes if one.get("x1") == _x(root, "broker 0")]
    assert [one.get("class") for one in of_broker_0] == ["d", "l", "d"]


def test_a_start_is_no_death_and_revives_the_lane_though_the_brokers_own_words_are_filtered_out() -> None:
    faults = [
        {"time_ms": at, "source": "lab", "kind": "fault", "action": action, "broker": 0, "process": "broker-0"}
        for at, action in enumerate(["kill", "start", "hold-fetch", "pause", "resume"])
    ]
    root = picture(faults)
    lanes = [one for one in root.iter(f"{SVG}line") if one.get("x1") == _x(root, "broker 0")]
    assert [one.get("class") for one in lanes] == ["l", "d", "l", "d", "l"]
    marks = [(one.get("d") or "").endswith("z") for one in root.iter(f"{SVG}path")]
    assert marks == [False, True, True, False, True], "a cross for a death, a diamond for anything else"


def test_a_bar_shows_who_leads_until_it_dies() -> None:
    bars = [one for one in picture(story()).iter(f"{SVG}rect") if one.find(f"{SVG}title") is not None]
    (bar,) = bars
    assert bar.findtext(f"{SVG}title") == "leader in epoch 1"
    assert float(bar.get("height", "")) == pytest.approx(4 * drawing.ROW_PX)


def test_only_the_last_events_are_drawn_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "MOST_ROWS", 2)
    drawn = draw(story(), Choice())
    assert (drawn.rows, drawn.left_out, drawn.events) == (2, 7, 9)
    assert "kill zookeeper" in drawn.svg
    assert "starting" not in drawn.svg


def many(records: int) -> list[dict[str, Any]]:
    """A leader and a follower, a record every 50 ms, each acknowledged; broker 1 is killed after half of them."""
    events: list[dict[str, Any]] = story()[:7]
    for number in range(1, records + 1):
        at = 50 * number
        for after, (kind, source, cause) in enumerate(
            [
                ("log_end_offset", "broker-0", "Produce"),
                ("log_end_offset", "broker-1", "FetchResponse"),
                ("high_watermark", "broker-0", "Fetch"),
                ("high_watermark", "broker-1", "FetchResponse"),
            ]
        ):
            events.append(event(at + after, kind, source, cause=cause, old=number, new=number + 1))
        if number == records // 2:
            events.append(event(at + 9, "isr", "broker-0", cause="X", old=[0, 1], new=[0], state="committed"))
    return events


def test_a_few_events_are_shown_one_by_one() -> None:
    assert draw(many(20), Choice())[1:] == (88, 0, 88)


def test_runs_of_thousands_of_offsets_fit_a_picture_that_can_be_looked_at() -> None:
    drawn = draw(many(2_000), Choice())
    assert drawn.events == 8_008
    assert drawn.rows <= GOOD_ROWS
    shown = words(ET.fromstring(drawn.svg))  # noqa: S314 - our own
    assert "ISR 0,1 -> 0" in shown
    isr = shown.index("ISR 0,1 -> 0")
    before = [text for text in shown[:isr] if text.startswith("LEO")]
    assert "-> 1001 (" in before[-1], "what the offsets were at another event stays"


def test_a_row_says_how_many_changes_it_stands_for() -> None:
    """A reader must not take the last of forty appends for one, nor a follower that was drawn earlier for one ahead."""
    merged = event(6, "log_end_offset", "broker-0", cause="Produce", old=0, new=20, changes=10)
    assert words(picture([merged, event(7, "high_watermark", "broker-0", cause="Fetch", old=0, new=1)])) == [
        "LEO 0 -> 20 (10 changes)",
        "HW 0 -> 1",
    ]
    shown = [text for text in words(picture(many(2_000))) if text.startswith("LEO")]
    stood_for = [int(found[1]) if (found := re.search(r"\((\d+) changes\)$", text)) else 1 for text in shown]
    assert sum(stood_for) == 2 * 2_000 + 2


def test_folded_rows_show_no_high_watermark_above_a_log_end_offset() -> None:
    """HW <= LEO on every replica (docs/replication.md)."""
    shown: dict[tuple[Any, str], int] = {}
    rows = folded(list(steps(many(2_000)[7:])))
    assert len(rows) < 200
    for step in rows:
        source, kind = step.event["source"], step.event["kind"]
        if kind != "isr":
            assert step.event["old"] == shown.get((source, kind), 1)
            shown[source, kind] = step.event["new"]
            assert shown.get((source, "high_watermark"), 0) <= shown[source, "log_end_offset"]


def test_roles_are_known_although_they_are_filtered_out() -> None:
    """The arrow of a fetch's response begins at the leader, whichever events are shown."""
    root = picture(story(), Choice(kinds=frozenset({"log_end_offset"})))
    arrows = [one for one in root.iter(f"{SVG}line") if one.get("stroke-width") == "1.3"]
    assert [one.get("x1") for one in arrows] == [_x(root, "clients"), _x(root, "broker 0")]


def test_an_empty_timeline_is_a_picture_that_says_so() -> None:
    assert ": no events" in draw([], Choice()).svg


def _x(root: ET.Element, lane: str) -> str | None:
    return next(one.get("x") for one in root.iter(f"{SVG}text") if one.text == lane)
