"""``make docs``: the site is built without a warning, and needs nothing from other hosts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROOT = Path(__file__).parents[2]
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*?\bsrc=["']?(?:https?:)?//
    | <link\b(?=[^>]*\brel=["']?(?:stylesheet|preconnect|preload))[^>]*?\bhref=["']?(?:https?:)?//
    | @import\s+["'(]|\burl\(["']?(?:https?:)?//""",
    re.VERBOSE,
)


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    assert LOADED.search('<script async src="https://a.org/x.js">')
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    built = [*tmp_path.rglob("*.html"), *tmp_path.rglob("*.css")]
    assert len(built) > 100
    found = [str(path.relative_to(tmp_path)) for path in built if LOADED.search(path.read_text(encoding="utf-8"))]
    assert found == []

    transactions = (tmp_path / "transactions.html").read_text(encoding="utf-8")
    assert transactions.count('<svg class="states"') == 2
    client = (tmp_path / "api" / "client.html").read_text(encoding="utf-8")
    assert "tidegauge_client.producer.Producer.send" in client
    assert '<html lang="zh-Hans"' in (tmp_path / "zh" / "glossary.html").read_text(encoding="utf-8")
    index = json.loads((tmp_path / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"].partition("#")[0] for entry in index["docs"]}
    pages = {str(path.relative_to(ROOT / "docs").with_suffix(".html")) for path in (ROOT / "docs").rglob("*.md")}
    pages = {re.sub(r"README\.html$", "index.html", page) for page in pages}
    assert pages - {place or "index.html" for place in places} == set()
