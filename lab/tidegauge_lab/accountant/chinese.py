"""The accountant's findings and the lab's refusals in Chinese, by the English pattern (``Translation``)."""

from __future__ import annotations

from functools import cache

from tidegauge_client.packaged_texts import packaged_texts


@cache
def findings_in_chinese() -> dict[str, str]:
    """Return the sentences by English pattern."""
    found: dict[str, str] = packaged_texts("tidegauge_lab.accountant", "findings_zh.yaml")
    return found
