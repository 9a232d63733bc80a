"""README's blocks, run in their order by a reader in an empty directory: what it shows is what happens."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.documents import Reader

pytestmark = pytest.mark.integration

README = Path(__file__).parents[2] / "README.md"


def test_readme_shows_what_happens(tmp_path: Path, next_base_port: Callable[[], int]) -> None:
    reader = Reader(tmp_path, next_base_port())
    try:
        assert reader.follow(README) >= 4
    finally:
        reader.close()
