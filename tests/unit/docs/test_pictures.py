"""The pictures of README: they stand alone, and say nothing of the machine that made them."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[3]
RECORDING = ROOT / "docs" / "images" / "failover.svg"
SVG = "{http://www.w3.org/2000/svg}"


def test_readme_shows_page_and_terminal_with_words_for_who_cannot_see_them():
    shown = {path: words for words, path in re.findall(r"!\[([^]]+)\]\(([^)]+)\)", (ROOT / "README.md").read_text())}
    assert {"docs/images/watch.png", "docs/images/failover.svg"} <= set(shown)
    assert all(len(words) > 40 for words in shown.values())


def test_the_recording_loads_nothing_and_names_no_machine():
    text = RECORDING.read_text(encoding="utf-8")
    assert set(re.findall(r"url\(\"?(.)", text)) == {"#"}
    assert set(re.findall(r"https?://[^\"'\s)]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "<script" not in text
    said = " ".join(node.text or "" for node in ET.parse(RECORDING).iter(f"{SVG}text")).replace("\xa0", " ")  # noqa: S314 - our own
    assert "tidegauge kill --leader-of orders-0" in said
    assert "elects 0, epoch 1" in said
    assert not re.search(r"(^|\s)/\w+|:\d{5}", said), "no path and no port"


def test_the_recording_is_whole_where_nothing_moves():
    """Its lines are hidden by an animation only, and only for who does not ask for less motion."""
    text = RECORDING.read_text(encoding="utf-8")
    motion = text.index("@media (prefers-reduced-motion:no-preference)")
    assert text.count("visibility:hidden") == 1
    assert all(motion < place.start() for place in re.finditer("animation:", text))
