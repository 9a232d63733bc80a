"""The pictures of README and the first steps: they stand alone, and say nothing of the machine that made them."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[3]
IMAGES = ROOT / "docs" / "images"
DRAWN, RECORDING = IMAGES / "failover.svg", IMAGES / "terminal.svg"
SVG = "{http://www.w3.org/2000/svg}"


def shown(page: str) -> dict[str, str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return {path: words for words, path in re.findall(r"!\[([^]]+)\]\(([^)]+)\)", text)}


def said(picture: Path) -> str:
    nodes = ET.parse(picture).iter(f"{SVG}text")  # noqa: S314 - our own
    return " ".join(node.text or "" for node in nodes).replace("\xa0", " ")


def test_pages_show_the_pictures_with_words_for_who_cannot_see_them():
    readme, first_steps = shown("README.md"), shown("docs/first-steps.md")
    assert set(readme) == {"docs/images/failover.svg"}
    assert set(first_steps) == {"images/terminal.svg", "images/watch.png"}
    assert all(len(words) > 40 for words in [*readme.values(), *first_steps.values()])


@pytest.mark.parametrize("picture", [DRAWN, RECORDING], ids=["drawn", "terminal"])
def test_a_moving_picture_loads_nothing_and_names_no_machine(picture: Path):
    text = picture.read_text(encoding="utf-8")
    assert set(re.findall(r"url\(\"?(.)", text)) <= {"#"}
    assert set(re.findall(r"https?://[^\"'\s)]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "<script" not in text
    assert "tidegauge kill --leader-of orders-0" in said(picture)
    assert not re.search(r"(^|\s)/\w+|:\d{5}", said(picture)), "no path and no port"


def test_the_pictures_show_the_election_and_what_was_lost():
    assert "elects 0, epoch 1" in said(RECORDING)
    assert re.search(r"s later: broker \d leads, epoch 1 begins at offset 6\.", said(DRAWN))
    assert "It truncates its log from 10 to 6: 4 acknowledged records are lost." in said(DRAWN)


def test_the_recording_is_whole_where_nothing_moves():
    """Its lines are hidden by an animation only, and only for who does not ask for less motion."""
    text = RECORDING.read_text(encoding="utf-8")
    motion = text.index("@media (prefers-reduced-motion:no-preference)")
    assert text.count("visibility:hidden") == 1
    assert all(motion < place.start() for place in re.finditer("animation:", text))


def test_the_drawn_failover_shows_its_last_moment_where_nothing_moves():
    """Earlier moments are hidden outside of the animations, which begin where motion is not unwanted."""
    text = DRAWN.read_text(encoding="utf-8")
    still, _, motion = text.partition("@media (prefers-reduced-motion:no-preference)")
    hidden = re.search(r"^(\.t\d+(?:,\.t\d+)*)\{opacity:0\}$", still, re.MULTILINE)
    assert hidden is not None
    assert "animation:" in motion
    assert "animation:" not in still
    earlier = set(hidden[1].replace(".", "").split(","))
    groups = re.findall(r'<g class="(t\d+)">(.*)</g>$', text, re.MULTILINE)
    last = " ".join(element for name, element in groups if name not in earlier)
    assert "In sync again." in last
    assert last.count("LEO 9") == 3
    assert "killed" not in last
