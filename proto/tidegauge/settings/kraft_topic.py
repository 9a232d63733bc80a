"""The limits of a topic's settings that Kafka 4 has and 3.9 does not.

A broker of Kafka 4 ends with a fatal fault when it loads a topic whose settings are out of these limits, so no
controller in KRaft mode keeps such settings. Brokers in ZooKeeper mode have the limits of 3.9.
Source: ``LogConfig`` of 4.3.1; KIP-1030.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.settings.model import Values
from tidegauge.settings.parsing import parse_topic_settings

SMALLEST: Mapping[str, int] = {"segment.bytes": 1_048_576}
"""The lowest values of settings whose limit Kafka 4 has raised."""


def parse_kraft_topic_settings(texts: Mapping[str, str]) -> Values:
    """Parse a topic's settings as ``parse_topic_settings`` does, within Kafka 4's limits.

    Raises:
        TidegaugeError: INVALID_CONFIG.
    """
    values = parse_topic_settings(texts)
    for name, smallest in SMALLEST.items():
        if name in texts and values.integer(name) < smallest:
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG,
                f"Invalid value {texts[name]} for configuration {name}: Value must be at least {smallest}",
            )
    return values
