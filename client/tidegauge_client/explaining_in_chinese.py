"""``explain`` in Chinese, by the patterns of ``explanations_zh.yaml``."""

from __future__ import annotations

from functools import cache

from tidegauge_client.packaged_texts import packaged_texts
from tidegauge_client.translation import Translation


@cache
def explanations_in_chinese() -> Translation:
    """Return the translation of headlines, sentences, rules and changes."""
    return Translation(packaged_texts("tidegauge_client", "explanations_zh.yaml"))
