"""docs/gallery: its page follows from the runs that are kept, and each run becomes a page that stands alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tools.gallery import (
    CHINESE,
    GALLERY,
    NAMES,
    kept_run,
    page,
    page_in_chinese,
    values_of,
    verdict_line,
    write_recordings,
)

ROOT = Path(__file__).parents[3]


def test_the_page_is_what_make_gallery_writes() -> None:
    assert (GALLERY / "README.md").read_text(encoding="utf-8") == page()
    assert (CHINESE / "README.md").read_text(encoding="utf-8") == page_in_chinese()


def test_no_sentence_of_the_chinese_page_is_english() -> None:
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", "", (CHINESE / "README.md").read_text(encoding="utf-8"))
    lines = [one for one in text.splitlines() if re.search(r"[a-z]{2} [a-z]{2}", one)]
    assert [one for one in lines if not re.search("[\u4e00-\u9fff]", one)] == []


def test_a_dozen_runs_are_kept_each_with_its_drawing_and_nothing_else() -> None:
    assert len(NAMES) == 12
    assert {one.stem for one in (GALLERY / "runs").glob("*.json")} == set(NAMES)
    assert {one.stem for one in GALLERY.glob("*.svg")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_has_a_story_steps_and_no_trace_of_the_machine(name: str) -> None:
    kept = kept_run(name)
    assert len(kept["steps"]) > 10
    assert kept["story"]["title"]
    assert kept["story"]["text"]
    text = json.dumps(kept) + (GALLERY / f"{name}.svg").read_text(encoding="utf-8")
    assert not re.search(r"/(?:tmp|home|work|root)\b", text)


@pytest.mark.parametrize(
    ("name", "mark"),
    [("loss-high-watermark", "✕"), ("divergence-high-watermark", "✕"), ("loss-cured", "✓"), ("divergence-cured", "!")],
)
def test_a_loss_is_marked_as_one_and_its_cure_is_not(name: str, mark: str) -> None:
    assert verdict_line(kept_run(name)["story"]["verdict"]).startswith(mark)


def test_a_recording_carries_its_story_and_asks_nothing_of_anybody(tmp_path: Path) -> None:
    written = write_recordings(tmp_path / "gallery")
    assert [one.stem for one in written] == list(NAMES)
    text = written[0].read_text(encoding="utf-8")
    assert kept_run(NAMES[0])["story"]["title"] in text
    assert set(re.findall(r"https?://[^\s\"'`<)]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in text


@pytest.mark.parametrize("name", NAMES)
def test_boxes_of_a_recording_have_the_values_of_which_its_verdict_speaks(name: str) -> None:
    values = {one for of_partition in values_of(name).values() for one in of_partition.values()}
    assert values
    spoken = set(re.findall(r"\b[mnz]\d\b", verdict_line(kept_run(name)["story"]["verdict"])))
    assert spoken <= values


def test_the_first_link_of_the_readme_leads_to_it() -> None:
    links = re.findall(r"\]\((docs/(?!zh/)[^)]*)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert links[0] == "docs/gallery/README.md"
