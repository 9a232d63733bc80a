"""The same story at a controller of ours and at one of Apache Kafka 4.3.1: equal responses, equal records.

Needs Maven, or the jars that it brought before; if they can't be had, the test says so and is skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.controllers_compared import story_differences
from tests.integration.quorum_nodes import kafka_classpath

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
FEWEST_BATCHES = 40
"""Of which the story leaves more."""


def test_one_story_gets_equal_responses_and_leaves_equal_records(tmp_path: Path):
    """KIP-631: brokers, topics, ISRs, settings, elections, moves, features, quotas, credentials, departures."""
    found = story_differences(tmp_path, kafka_classpath())
    assert found.responses == []
    assert found.batches == []
    assert found.compared_batches > FEWEST_BATCHES
