"""The sentences of the labs' checks in Chinese, by the English pattern (``Translation``)."""

from __future__ import annotations

from functools import cache
from importlib import resources

import yaml

from tidegauge_client.translation import Translation


@cache
def sentences_of_labs() -> dict[str, str]:
    """Return the sentences of checks, and of a lab's begin and end."""
    text = resources.files("tidegauge_lab.labs").joinpath("sentences_zh.yaml").read_text(encoding="utf-8")
    found: dict[str, str] = yaml.safe_load(text)
    return found


@cache
def in_chinese() -> Translation:
    """Return the translation of checks."""
    return Translation(sentences_of_labs())
