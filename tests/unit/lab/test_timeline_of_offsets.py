"""Expired offsets in the timeline: a line of their group."""

from __future__ import annotations

from tidegauge_lab.timeline.words import group_of, happening


def test_expired_offsets_are_a_line_of_their_group() -> None:
    """KIP-211; GroupMetadataManager.cleanupGroupMetadata."""
    event = {"kind": "offsets", "group": "app", "partitions": ["t-0"], "cause": "OffsetsRetention"}
    assert (group_of(event), happening(event)) == ("app", "1 committed offset expired: t-0")
    many = event | {"partitions": [f"t-{number}" for number in range(7)]}
    assert happening(many) == "7 committed offsets expired: t-0, t-1, t-2, t-3, t-4, ..."
