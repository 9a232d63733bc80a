"""The table in docs/clients.md: client, version, what works; written from the results of the tests that try it.

Tests that say ``@pytest.mark.kafka_client(what)`` are its source; with ``--record-clients`` (``make clients``) their
results go to results.json and from there to the page. A test that is skipped or was not run keeps its former result;
delete the file to begin again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from tidegauge_client.cluster_file import KRAFT_MODE, ZOOKEEPER_MODE

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
BEGIN, END = "<!-- The table: make clients -->\n", "<!-- End of the table -->\n"
MARK = "kafka_client"
Result = Mapping[str, str]


def rendered(results: Iterable[Result]) -> str:
    """Return the table: a row for each client and version, skipped tests left out."""
    rows: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if result["outcome"] != "skipped":
            rows.setdefault((result["client"], result["version"]), []).append(result)
    lines = ["| client | version | what works | tried in |", "|---|---|---|---|"]
    for (client, number), tried in sorted(rows.items()):
        works, fails = (_said(one for one in tried if one["outcome"] == outcome) for outcome in ("passed", "failed"))
        files = _unique(Path(one["test"].partition("::")[0]).name for one in tried)
        what = works + (f" **Does not work:** {fails}" if fails else "")
        lines.append(f"| {client} | {number} | {what} | {', '.join(f'`{name}`' for name in files)} |")
    return "\n".join([*lines, ""])


def _said(results: Iterable[Result]) -> str:
    """Return what was tried, each once, with the modes of the clusters if KRaft mode is among them."""
    modes: dict[str, set[str]] = {}
    for one in results:
        modes.setdefault(one["what"], set()).add(one.get("mode", ZOOKEEPER_MODE))
    words = {(ZOOKEEPER_MODE,): "", (KRAFT_MODE,): " (KRaft mode)"}
    return "; ".join(f"{what}{words.get(tuple(of), ' (both modes)')}" for what, of in modes.items())


def _unique(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))


def with_table(page: str, results: Iterable[Result]) -> str:
    """Return the page with the table of these results in its place."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{rendered(results)}\n{END}{after}"


def known_results() -> list[Result]:
    """Return the results of the last ``make clients``."""
    return list(json.loads(RESULTS.read_text(encoding="utf-8"))) if RESULTS.exists() else []


class ClientRecorder:
    """Collects what the marked tests of a run tried, and writes results and table at its end."""

    def __init__(self) -> None:
        self._tried: dict[str, pytest.Mark] = {}
        self._seen: dict[str, Result] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        marks = ((item.nodeid, item.get_closest_marker(MARK)) for item in session.items)
        self._tried = {nodeid: mark for nodeid, mark in marks if mark is not None}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        mark = self._tried.get(report.nodeid)
        if mark is None or (report.when != "call" and report.outcome == "passed"):
            return
        reported = dict(report.user_properties) | mark.kwargs
        if "package" in reported:
            reported["version"] = version(reported["package"])
        self._seen[report.nodeid] = {
            "client": str(reported.get("client", "")),
            "version": str(reported.get("version", "")),
            "what": str(reported.get("what", mark.args[0])),
            "test": report.nodeid,
            "outcome": report.outcome,
            **({"mode": str(reported["mode"])} if "mode" in reported else {}),
        }

    def pytest_sessionfinish(self) -> None:
        former = {one["test"]: one for one in known_results()}
        kept = {
            nodeid: one for nodeid, one in self._seen.items() if one["outcome"] != "skipped" or nodeid not in former
        }
        results = list((former | kept).values())
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
