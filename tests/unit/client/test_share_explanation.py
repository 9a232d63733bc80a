"""Why a share partition is as it is: each sentence from its facts (SharePartition and ShareCoordinatorShard of 4.3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2
from tidegauge_client.cli.explain_share import share_headline, share_view
from tidegauge_client.group_explanation import OffsetsPartition
from tidegauge_client.sentences import Sentence, as_lines
from tidegauge_client.share_explanation import ShareFacts, explain_share
from tidegauge_client.share_sentences import (
    RULE_ARCHIVED_BY_LOG,
    RULE_FENCED,
    RULE_LIMIT,
    RULE_MIN_ISR,
    RULE_RESET,
    RULE_UNWRITTEN,
)
from tidegauge_client.share_views import BrokerShares, KeptShare, LedShare, Records, shares_of

AT = TopicPartition("orders", 0)
HELD = OffsetsPartition(TopicPartition("__share_group_state", 17), 2, 4, (2, 0, 1), (2, 0, 1))
LED = LedShare("q", AT, "active", 3, 5, 10, 10, 0, high_watermark=10, last_stable_offset=10)
KEPT = KeptShare("q", AT, 17, 5, 3, 10, 0)
BASE = ShareFacts(
    "q",
    AT,
    1,
    3,
    HELD,
    frozenset({0, 1, 2}),
    {0: BrokerShares(), 1: BrokerShares(led=(LED,)), 2: BrokerShares(kept=(KEPT,))},
)


def with_led(led: LedShare | None) -> ShareFacts:
    return replace(BASE, shares={**BASE.shares, 1: BrokerShares(led=() if led is None else (led,))})


def with_kept(kept: KeptShare | None) -> ShareFacts:
    return replace(BASE, shares={**BASE.shares, 2: BrokerShares(kept=() if kept is None else (kept,))})


def in_flight(*records: Records, end: int = 20, **more: object) -> LedShare:
    return replace(LED, end_offset=end, records=records, high_watermark=end, **more)  # type: ignore[arg-type]


def said(facts: ShareFacts, about: str) -> list[Sentence]:
    return [one for one in explain_share(facts) if one.about == about]


def test_without_a_leader_no_member_gets_records() -> None:
    (sentence,) = said(replace(BASE, leader=None), "leader")
    assert "orders-0 has no leader" in sentence.text
    assert sentence.change == "a leader of orders-0: `tidegauge explain orders-0`"


@pytest.mark.parametrize(
    ("led", "words"),
    [
        (None, "has nothing in flight: it has not loaded the share partition"),
        (replace(LED, state="initializing", waiting_fetches=2), "still loading the state of the share partition; 2"),
        (replace(LED, leader_epoch=2), "is of epoch 2, and is being dropped"),
        (replace(LED, waiting_fetches=1), "with state epoch 5; 1 fetch of members waits"),
        (LED, "with state epoch 5; no fetch of a member waits"),
    ],
)
def test_what_the_leader_has_of_it(led: LedShare | None, words: str) -> None:
    (sentence,) = said(with_led(led), "leader")
    assert sentence.text.startswith("Broker 1 leads orders-0 in epoch 3")
    assert words in sentence.text


def test_a_leader_without_a_lab_leaves_what_is_in_flight_unknown() -> None:
    """Nothing is assumed about a broker that does not respond."""
    facts = replace(BASE, shares={2: BASE.shares[2]})
    (sentence,) = said(facts, "leader")
    assert "its records in flight are not known here" in sentence.text
    assert said(facts, "records") == said(facts, "window") == []
    assert share_headline(facts) == "share:q/orders-0: leader 1, epoch 3, nothing in flight, durable start offset 10"


def test_a_former_leader_that_still_serves_is_named() -> None:
    old = replace(LED, leader_epoch=2)
    facts = replace(BASE, shares={**BASE.shares, 0: BrokerShares(led=(old,))})
    (sentence,) = said(facts, "zombie")
    assert sentence.text.startswith("Broker 0 takes itself for the leader, in epoch 2")
    assert sentence.rule == RULE_FENCED
    assert share_view(facts)["former_leaders"]["0"]["leader_epoch"] == 2


def test_without_a_written_start_each_leader_decides_again() -> None:
    """The reset that surprises: latest is the high watermark when the leader loads the state."""
    facts = with_kept(replace(KEPT, start_offset=-1))
    (sentence,) = said(facts, "state")
    assert "share.auto.offset.reset decides latest, which made it 10 here" in sentence.text
    assert sentence.rule == RULE_RESET
    assert share_view(facts)["durable"]["start_offset"] is None


def test_the_durable_state_is_what_a_new_leader_would_know() -> None:
    kept = replace(KEPT, records=(Records(10, 11, "acknowledged", 1), Records(12, 12, "available", 2)))
    (sentence,) = said(with_kept(kept), "state")
    assert "keeps the start offset 10 (state epoch 5, leader epoch 3)" in sentence.text
    assert "available 12 (delivered twice); acknowledged 10 to 11 (delivered once)" in sentence.text


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (replace(BASE, held=None), "no __share_group_state yet"),
        (replace(BASE, held=replace(HELD, leader=None), live=frozenset({0})), "has no leader: of its replicas on"),
        (replace(BASE, shares={1: BASE.shares[1]}), "so the state is not known here"),
        (with_kept(None), "has no state of the share partition: it was never initialized"),
        (
            replace(BASE, shares={**BASE.shares, 2: BrokerShares(refusals={"q:x:0": "a record cannot be read"})}),
            "out of service: a record cannot be read.",
        ),
    ],
)
def test_a_state_that_is_not_there(facts: ShareFacts, words: str) -> None:
    (sentence,) = said(facts, "state")
    assert words in sentence.text


def test_below_min_isr_nothing_that_members_say_can_be_written() -> None:
    facts = replace(BASE, held=replace(HELD, isr=(2,), min_isr=2))
    *_, sentence = said(facts, "state")
    assert sentence.rule == RULE_MIN_ISR
    assert "fewer than min.insync.replicas=2" in sentence.text


def test_what_is_not_written_yet_has_no_response_and_does_not_count() -> None:
    led = in_flight(
        Records(10, 12, "acknowledged", 1, "m-1", 900, is_being_written=True),
        Records(13, 19, "acquired", 1, "m-1", 900),
        unwritten_count=1,
    )
    facts = with_led(led)
    assert any("1 write of the leader is not written yet" in one.text for one in said(facts, "state"))
    first, second = said(facts, "records")
    assert (first.text, first.rule) == (
        "m-1 has accepted 10 to 12 (delivered once); that is being written, and does not count yet.",
        RULE_UNWRITTEN,
    )
    assert "m-1 has acquired 13 to 19" in second.text
    assert "10 is being acknowledged, which is not written yet." in said(facts, "window")[0].text


def test_who_has_which_record_until_when() -> None:
    led = in_flight(
        Records(10, 12, "acquired", 1, "m-1", 4_000),
        Records(13, 13, "acquired", 5, "m-2", 900),
        Records(14, 15, "acquired", 2, "m-1", 24_000),
        Records(16, 19, "acknowledged", 1),
        complete_count=4,
    )
    sentences = said(with_led(led), "records")
    one, two, last = sentences[:3]
    assert one.text == (
        "m-1 has acquired 10 to 12 (delivered once), 14 to 15 (delivered twice), the first for another 4.0 s at most, "
        "all for another 24 s."
    )
    assert (one.subject, one.wait_ms) == ("m-1", 24_000)
    assert two.text == "m-2 has acquired 13 (delivered 5 times), for another 0.9 s at most."
    assert "last delivery of 13: share.delivery.count.limit is 5" in last.text
    assert sentences[3].text == "16 to 19 (delivered once) are acknowledged."
    (window,) = said(with_led(led), "window")
    assert window.text == "10 offsets from 10 to 19 are in flight, 4 of them done. 10 is acquired by m-1."
    assert window.change == "the end of 10"
    assert share_headline(with_led(led)) == (
        "share:q/orders-0: leader 1, epoch 3, start 10, 10 offsets in flight (6 acquired), high watermark 20"
    )


def test_available_archived_and_unknown_records() -> None:
    led = in_flight(
        Records(10, 10, "available", 4),
        Records(11, 12, "archived", 1, is_archived_by_log=True),
        Records(13, 13, "archived", 5),
        Records(14, 15, "unknown"),
        Records(16, 19, "none"),
    )
    texts = {one.text: one.rule for one in said(with_led(led), "records")}
    assert "10 (delivered 4 times) is available again, for the next fetch of any member." in texts
    assert "The next delivery of 10 is the last: share.delivery.count.limit is 5." in texts
    assert texts["11 to 12 (delivered once) are archived, and never delivered again."] == RULE_ARCHIVED_BY_LOG
    assert "13 (delivered 5 times) is archived, and never delivered again." in texts
    assert any(one.startswith("Of 14 to 15 the state that was read says nothing: they are") for one in texts)
    assert "16 to 19 have no record." in texts


def test_a_full_window_acquires_nothing_new() -> None:
    led = in_flight(Records(10, 19, "acquired", 1, "m", 5), max_record_locks=10)
    assert said(with_led(led), "window")[1].rule == RULE_LIMIT
    assert len(said(with_led(replace(led, max_record_locks=11)), "window")) == 1


def test_what_is_to_come_ends_at_the_high_watermark_or_the_last_stable_offset() -> None:
    behind = replace(LED, high_watermark=15, last_stable_offset=12)
    assert said(with_led(behind), "records")[0].text.startswith("5 offsets from 10 to 14 were never delivered")
    committed = replace(behind, reads_committed=True)
    assert "2 offsets from 10 to 11 were never delivered; the last stable offset is 12" in (
        said(with_led(committed), "records")[0].text
    )
    beyond = replace(LED, start_offset=1000, end_offset=1000)
    assert "990 beyond the high watermark 10" in said(with_led(beyond), "records")[0].text
    assert said(BASE, "records") == []


def test_the_text_has_titles_and_each_sentence_its_rule() -> None:
    found = list(as_lines(share_headline(BASE), explain_share(BASE), lambda text, indent: [indent + text]))
    assert found[0] == "share:q/orders-0: leader 1, epoch 3, start 10, 0 offsets in flight, high watermark 10"
    assert [line for line in found if line and not line.startswith(" ")][1:] == ["Leader", "State", "Window"]
    assert sum(line.startswith("    Rule: ") for line in found) == len(explain_share(BASE))


def test_a_lab_service_s_response_in_plain_values() -> None:
    response = lab_pb2.ObserveSharesResponse(
        shares=[
            lab_pb2.ObservedShare(
                group_id="q",
                partition=lab_pb2.LabPartition(topic="orders", partition=0),
                state="active",
                leader_epoch=3,
                state_epoch=5,
                start_offset=1,
                end_offset=3,
                records=[
                    lab_pb2.ObservedShareRecords(first_offset=1, last_offset=1, state="acquired", lock_left_ms=0),
                    lab_pb2.ObservedShareRecords(first_offset=2, last_offset=2, state="acknowledged"),
                ],
            )
        ],
        states=[lab_pb2.ObservedShareState(group_id="q", topic="orders", state_partition=17, start_offset=-1)],
        out_of_service={"k": "why"},
    )
    found = shares_of(response)
    assert [(one.lock_left_ms, one.offsets) for one in found.led[0].records] == [(0, "1"), (None, "2")]
    assert (found.kept[0].at, found.kept[0].start_offset, found.refusals) == (AT, -1, {"k": "why"})
