"""The drawn failover of docs/images (tools/moving_picture.py): what events do to the picture, and when."""

from __future__ import annotations

import re
from typing import Any

from tools.moving_picture import LONGEST_SECONDS, Command, Moment, Replica, after, film, svg

SECOND_US = 1_000_000


def event(at_us: int, kind: str, source: str = "broker-0", **fields: Any) -> dict[str, Any]:
    return {"logical_time": at_us, "kind": kind, "source": source, **fields}


def grown(at_us: int, old: int, new: int, source: str = "broker-0") -> dict[str, Any]:
    return event(at_us, "log_end_offset", source, old=old, new=new)


BEGUN = Moment({0: Replica(starts=((0, 0),)), 1: Replica(starts=((0, 0),))}, isr=(0, 1), leader=0)


def test_records_have_the_epoch_that_the_cache_says_and_a_truncation_removes_them() -> None:
    moment = after(BEGUN, grown(1, 0, 2))
    moment = after(moment, event(2, "epoch", leader_epoch=3, start_offset=2))
    moment = after(moment, grown(3, 2, 4))
    assert moment.replicas[0].epochs == (0, 0, 3, 3)
    moment = after(moment, event(4, "truncation", old=4, new=1))
    assert (moment.replicas[0].epochs, moment.replicas[0].truncated) == ((0,), 3)
    assert after(moment, event(5, "high_watermark", old=0, new=1)).replicas[0].truncated == 0
    assert moment.replicas[1] == BEGUN.replicas[1]


def test_a_kill_is_of_the_broker_that_the_lab_names_and_ends_when_it_is_registered_again() -> None:
    killed = after(BEGUN, event(1, "fault", "lab", action="kill", broker=1))
    assert [one.is_alive for one in killed.replicas.values()] == [True, False]
    starting = after(killed, event(2, "broker", "broker-1", state="starting"))
    assert not starting.replicas[1].is_alive
    assert after(starting, event(3, "broker", "broker-1", state="registered")).replicas[1].is_alive


def test_an_isr_counts_when_it_is_committed() -> None:
    pending = event(1, "isr", new=[0], state="pending-shrink")
    assert after(BEGUN, pending).isr == (0, 1)
    assert after(BEGUN, pending | {"state": "committed"}).isr == (0,)


def test_a_long_pause_is_shortened_and_a_sentence_has_its_time() -> None:
    commands = [Command(5, "one two", "a caption of five words")]
    events = [
        event(1, "epoch", leader_epoch=0, start_offset=0),
        event(2, "election", leader=0, leader_epoch=0, isr=[0, 1]),
        grown(10, 0, 1),
        grown(10 + 60 * SECOND_US, 1, 2),
        event(10 + 61 * SECOND_US, "fault", "lab", action="kill", broker=0),
        event(10 + 65 * SECOND_US, "election", leader=1, leader_epoch=1, isr=[1]),
    ]
    shown = film(events, commands, [0, 1])
    captions = [moment.caption for _, moment in shown.moments]
    assert captions[0] == "a caption of five words"
    assert captions[-1] == "4.0 s later: broker 1 leads, epoch 1 begins at offset 0."
    seconds = [one for one, _ in shown.moments]
    assert seconds[0] > 1.5
    assert seconds[1] == LONGEST_SECONDS
    assert [len(moment.replicas[0].epochs) for _, moment in shown.moments] == [0, 1, 2, 2, 2]


def test_what_is_shown_throughout_does_not_move_and_the_rest_has_its_time() -> None:
    events = [event(1, "epoch", leader_epoch=0, start_offset=0), grown(10, 0, 1), grown(20, 1, 2)]
    picture = svg(film(events, [Command(5, "go", "see")], [0]))
    [always] = re.findall(r'<g class="(t\d+)"><text [^>]*>\$ go<', picture)
    assert f"@keyframes {always}{{" not in picture
    [first, second] = (re.findall(rf'<g class="(t\d+)"><text [^>]*>LEO {end}<', picture)[0] for end in (1, 2))
    assert f"@keyframes {first}{{0%{{opacity:0}}100%{{opacity:0}}" in picture
    assert re.search(rf"@keyframes {second}{{0%{{opacity:0}}(?!100%)", picture)
    hidden = re.search(r"^(\S+)\{opacity:0\}$", picture, re.MULTILINE)
    assert hidden is not None
    assert f".{first}" in hidden[1].split(",")
    assert f".{second}" not in hidden[1].split(",")
