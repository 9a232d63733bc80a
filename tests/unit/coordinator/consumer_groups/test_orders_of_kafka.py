"""The order of a group's members and the choice of its assignor, on which assignments depend, are Kafka's.

Kafka 4.3.1's own TimelineHashMap gave the orders after the same calls. The choices were seen beside Kafka 4.3.1
(bench/differential_coordinators.py).
"""

import pytest

from tidegauge_broker.coordinator.consumer_group.assignors.timeline_map import TimelineMap, members_to_assign
from tidegauge_broker.coordinator.consumer_group.assignors.votes import AssignorVotes

OF_KAFKA = """
+m28 -m3 +m4 +m16 -m28 +m13 +m3 +m4 +m12 +m29 +m2 +m29 +m29 -m23 +m2 +m4 -m16 +m15 -m0 +m14 +m20 -m27 +m12
+m18 -m17 +m3| m20 m12 m2 m14 m4 m29 m13 m18 m3 m15

+m12 +m7 +m0 +m9 +m18 -m26 -m24 +m26 +m9 -m11 +m27 +m22 -m24 +m5 +m22 +m6 +m20 +m14 -m25 +m8 +m25 -m19 -m0 +m3
-m17 +m16 +m1 -m19 +m22| m20 m5 m25 m12 m22 m14 m7 m27 m1 m16 m9 m6 m26 m3 m18 m8

-m20 -m1 +m12 -m4 +m1 +m22 -m4 +m16 +m27 -m19 +m12 +m5 +m13 +m29 -m23| m5 m12 m22 m27 m29 m16 m1 m13

+m22 +m28 +m15 -m16 -m7 +m8 +m20 -m12 +m6 +m18 -m29 +m13 +m3 +m3 -m11 +m3 +m20 +m7 -m5 +m13 +m16 +m12 +m16|
m20 m28 m12 m22 m7 m16 m6 m13 m3 m18 m8 m15

+m6 +m18 -m23 +m4 +m11 +m8 +m21 -m24 +m0 +m8 +m8 +m19| m0 m19 m4 m11 m21 m6 m18 m8

+m14 +m4 +m4 +m29 +m24 -m12 +m1 -m22 +m18 +m9 +m14 +m1 +m14 +m10 +m11 +m3 -m21 +m2 +m6 -m14 +m20 +m27 -m25 +m9
+m12 +m15 +m20 +m22 +m15 +m27 -m15 +m19 -m15 +m25 +m17 +m12 -m10| m20 m25 m12 m17 m2 m22 m27 m19 m4 m11 m24 m9
m1 m29 m6 m3 m18

+m16 +m25 +m27 +m6 +m13 +m16 +m28 +m8 +m8 +m24 -m16 +m22 +m24 +m8 -m7 -m0 +m22 -m26 -m15 +m11 +m2 -m20 +m11
-m17 +m13 -m28 +m19 -m6 -m2 +m8| m25 m22 m27 m19 m11 m24 m13 m8

+m0 -m0 -m16 +m28 +m4 +m29 +m18 +m0 +m13 -m28 +m19 -m8 +m19 +m20 +m20 +m2 +m26 -m25 +m10 -m13 +m7 +m12 +m29
+m24 +m13 +m11 +m5 +m29 +m12 +m18 +m24 +m19 +m24 +m5| m20 m0 m5 m12 m2 m7 m19 m4 m11 m24 m29 m13 m26 m18 m10
"""
"""Keys that were put (+) and removed (-), and those that are left, in Kafka's order."""


@pytest.mark.parametrize("story", OF_KAFKA.strip().split("\n\n"))
def test_members_are_in_the_order_of_kafkas_map(story):
    calls, _, expected = story.partition("|")
    members: TimelineMap[int] = TimelineMap()
    for call in calls.split():
        if call[0] == "+":
            members[call[1:]] = 1
        else:
            members.pop(call[1:], None)
    assert members.in_order() == expected.split()
    copied = TimelineMap(members)
    assert copied.in_order() == expected.split()
    assert copied == members


FIRST, SECOND, THIRD = "EREAAAAAQACAAAAAAAAAQQ", "EREAAAAAQACAAAAAAAAAQg", "EREAAAAAQACAAAAAAAAAQw"
"""Java's HashMap of 16 has the second and the third in one slot."""


def group_of(*members: str) -> TimelineMap[int]:
    made: TimelineMap[int] = TimelineMap()
    for member in members:
        made[member] = 0
    return made


def test_of_two_members_in_one_slot_the_newer_comes_first_unless_it_joins_now():
    both = group_of(SECOND, THIRD)
    assert members_to_assign(both, both) == [THIRD, SECOND]
    assert members_to_assign(group_of(SECOND), both) == [SECOND, THIRD]


def test_a_static_member_that_takes_anothers_place_comes_after_all():
    assert members_to_assign(group_of(FIRST, THIRD), group_of(THIRD, SECOND)) == [THIRD, SECOND]
    assert members_to_assign(group_of(FIRST, SECOND), group_of(FIRST, THIRD)) == [THIRD, FIRST]


def votes_of(*changes: tuple[str | None, str | None]) -> AssignorVotes:
    votes = AssignorVotes()
    for former, now in changes:
        votes.change(former, now)
    return votes


def test_most_votes_choose_the_assignor():
    votes = votes_of((None, "range"), (None, "range"), (None, "uniform"))
    assert votes.preferred() == votes.preferred_after(None, None) == "range"
    assert votes.preferred_after("range", "uniform") == "uniform"
    assert AssignorVotes().preferred() is AssignorVotes().preferred_after(None, None) is None
    assert votes_of((None, "range"), ("range", None)).preferred() is None


def test_a_member_that_sends_a_heartbeat_decides_between_assignors_with_equal_votes():
    """Its name goes to the head of its slot in the HashMap in which Kafka counts; a description counts elsewhere."""
    votes = votes_of((None, "uniform"), (None, "range"))
    assert votes.preferred_after("uniform", "uniform") == "uniform"
    assert votes.preferred_after("range", "range") == "range"
    assert votes_of((None, "uniform")).preferred_after(None, "range") == "range"
    assert votes.preferred() == "uniform"


def test_a_name_that_another_member_asks_for_as_well_keeps_its_place():
    votes = votes_of((None, "uniform"), (None, "uniform"), (None, "range"), (None, "range"))
    assert votes.preferred_after("range", "range") == "uniform"
