"""The page's sentences in Chinese, by the English pattern (``Translation``), for its script ``chinese.js``."""

from __future__ import annotations

from functools import cache

from tidegauge_client.languages import CHINESE
from tidegauge_client.packaged_texts import packaged_texts
from tidegauge_lab.accountant.chinese import findings_in_chinese
from tidegauge_lab.labs.catalogue import LABS
from tidegauge_lab.labs.chinese import sentences_of_labs
from tidegauge_lab.labs.texts import text_of
from tidegauge_lab.scenario.chinese import sentences_of_scenarios


@cache
def sentences_of_views() -> dict[str, str]:
    """Return the sentences of views, events and buttons: all for recordings."""
    found: dict[str, str] = packaged_texts("tidegauge_lab.watch", "sentences_zh.yaml")
    return findings_in_chinese() | found


@cache
def sentences_of_page() -> dict[str, str]:
    """Return the sentences of the page, with labs and stories."""
    titles = {text_of(lab).title: text_of(lab, CHINESE).title for lab in LABS}
    return sentences_of_scenarios() | sentences_of_labs() | titles | sentences_of_views()
