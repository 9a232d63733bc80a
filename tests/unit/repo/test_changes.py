"""Files in changes/: towncrier passes over those that it can't place, and a change would be missing in a release."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
CHANGES = ROOT / "changes"


def test_every_change_has_a_kind_that_the_changelog_knows() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
    kinds = [kind["directory"] for kind in settings["type"]]
    of_change = re.compile(rf"[a-z0-9-]+\.({'|'.join(kinds)})\.md")
    odd = [path.name for path in CHANGES.iterdir() if path.name != "README.md" and not of_change.fullmatch(path.name)]
    assert not odd
    readme = (CHANGES / "README.md").read_text(encoding="utf-8")
    assert all(f"| `{kind}` |" in readme for kind in kinds), "the page names each kind"


def test_a_change_is_a_sentence() -> None:
    for path in CHANGES.glob("*.*.md"):
        text = path.read_text(encoding="utf-8").strip()
        assert text.endswith((".", ")")), path.name
        assert not text.startswith(("-", "*", "#")), f"{path.name}: towncrier makes the list"
