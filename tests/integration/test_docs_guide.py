"""The guide's chapters, run by a reader in an empty directory: what they show is what happens.

Two quick ones in each run, the others in ``make test-long``; their scenarios are played by test_scenarios.py anyway.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.documents import Reader, blocks

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted(ROOT.glob("docs/guide/[0-9][0-9]-*.md"))
QUICK = {"03-one-round-late.md"}


def chapter(page: Path) -> object:
    marks = [pytest.mark.timeout(1200)] if page.name in QUICK else [pytest.mark.long, pytest.mark.timeout(1500)]
    if any("spark-submit" in block.text for block in blocks(page.read_text(encoding="utf-8"))):
        marks.append(pytest.mark.spark)
    return pytest.param(page, marks=marks, id=page.stem)


@pytest.mark.parametrize("page", [chapter(page) for page in CHAPTERS])
def test_a_chapter_shows_what_happens(page: Path, tmp_path: Path, next_base_port: Callable[[], int]) -> None:
    (tmp_path / "spark_jobs").symlink_to(ROOT / "spark_jobs")  # one chapter is read in a checkout
    reader = Reader(tmp_path, next_base_port())
    try:
        assert reader.follow(page) >= 1
    finally:
        reader.close()


def test_the_two_quick_chapters_are_there() -> None:
    assert {page.name for page in CHAPTERS} >= QUICK
