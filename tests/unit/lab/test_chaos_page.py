"""docs/chaos.md names the faults and workloads that there are, and how many cases they make."""

from __future__ import annotations

import re
from pathlib import Path

from tests.integration.chaos import FAULTS
from tests.integration.chaos_load import WORKLOADS

PAGE = (Path(__file__).parents[3] / "docs" / "chaos.md").read_text(encoding="utf-8")


def test_the_page_names_every_fault_and_workload() -> None:
    table = PAGE.partition("## Faults")[2].partition("## Workloads")[0]
    named = re.findall(r"`([^`]+)`", "\n".join(line for line in table.splitlines() if line.startswith("|")))
    assert sorted(named) == sorted(FAULTS)
    assert re.findall(r"^\| `([\w-]+)` \|", PAGE, re.MULTILINE) == list(WORKLOADS)


def test_the_page_counts_the_cases() -> None:
    assert f"every workload: {len(FAULTS) * len(WORKLOADS)} cases" in PAGE
