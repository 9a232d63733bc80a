"""The sentences of the labs' checks in Chinese, by the English pattern (``Translation``)."""

from __future__ import annotations

from functools import cache

from tidegauge_client.packaged_texts import packaged_texts
from tidegauge_client.translation import Translation


@cache
def sentences_of_labs() -> dict[str, str]:
    """Return the sentences of checks, and of a lab's begin and end."""
    found: dict[str, str] = packaged_texts("tidegauge_lab.labs", "sentences_zh.yaml")
    return found


@cache
def in_chinese() -> Translation:
    """Return the translation of checks."""
    return Translation(sentences_of_labs())
