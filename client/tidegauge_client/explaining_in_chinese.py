"""``explain`` in Chinese, by the patterns of ``explanations_zh.yaml``."""

from __future__ import annotations

from functools import cache
from importlib import resources

import yaml

from tidegauge_client.translation import Translation


@cache
def explanations_in_chinese() -> Translation:
    """Return the translation of headlines, sentences, rules and changes."""
    text = resources.files("tidegauge_client").joinpath("explanations_zh.yaml").read_text(encoding="utf-8")
    return Translation(yaml.safe_load(text))
