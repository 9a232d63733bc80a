"""DeleteTopics of topics that are named in both ways, or in none, by the controller (KIP-516)."""

from __future__ import annotations

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.kafka.kraft.messages.delete_topics import DeleteTopicState
from tidegauge_broker.server.quorum.controller.topics_served import _ambiguous

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize(
    ("name", "topic_id", "message"),
    [
        ("a", TOPIC_ID, "You may not specify both topic name and topic id."),
        ("", TOPIC_ID, "You may not specify both topic name and topic id."),
        (None, NIL_UUID, "Neither topic name nor id were specified."),
    ],
)
def test_what_is_refused_is_named_as_in_the_request(name: str | None, topic_id: bytes, message: str) -> None:
    """``ControllerApis.deleteTopics``: an empty name is a name."""
    refused = _ambiguous(DeleteTopicState(name, topic_id))
    assert (refused.name, refused.topic_id, refused.error_message) == (name, topic_id, message)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
