"""What the page says, in Chinese, for its script ``chinese.js``: sentences by the English pattern (``Translation``)."""

from __future__ import annotations

from functools import cache
from importlib import resources

import yaml

from tidegauge_client.languages import CHINESE
from tidegauge_lab.labs.catalogue import LABS
from tidegauge_lab.labs.chinese import sentences_of_labs
from tidegauge_lab.labs.texts import text_of
from tidegauge_lab.scenario.chinese import sentences_of_scenarios


@cache
def sentences_of_views() -> dict[str, str]:
    """Return what views, events and buttons say; the page ``play`` and recordings need no more."""
    text = resources.files("tidegauge_lab.watch").joinpath("sentences_zh.yaml").read_text(encoding="utf-8")
    found: dict[str, str] = yaml.safe_load(text)
    return found


@cache
def sentences_of_page() -> dict[str, str]:
    """Return all that the page of ``tidegauge watch`` says, labs and stories included."""
    titles = {text_of(lab).title: text_of(lab, CHINESE).title for lab in LABS}
    return sentences_of_scenarios() | sentences_of_labs() | titles | sentences_of_views()
