"""The documentation site (tools/site): all pages are in its navigation, and what it changes on the way from docs/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.site import pages, reference, state_diagram

import tidegauge_client
from tidegauge_client.cli.main import Verbs, root
from tidegauge_lab.control.endpoints import ENDPOINTS, document

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
WITH_DIAGRAMS = ["docs/controller.md", "docs/replication.md", "docs/groups.md", "docs/transactions.md"]


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for one in nav.values() if isinstance(nav, dict) else nav:
            yield from leaves(one)


def sent(markdown: str, path: str = "docs/guide/x.md") -> str:
    return pages.for_the_site(markdown, path, {"broker/log", "docs/adr", "docs/labs"}.__contains__, str.upper)


def test_every_page_is_in_the_navigation_once() -> None:
    """docs/README.md is the navigation: who adds a page adds a row there."""
    nav = list(leaves(pages.navigation(read, DOCUMENTS)))
    assert [one for one in nav if nav.count(one) > 1] == []
    assert set(map(pages.place, DOCUMENTS)) - set(nav) == set()
    assert set(nav) - set(map(pages.place, DOCUMENTS)) == {"index.md", "project/ARCHITECTURE.md", "adr/README.md"}


def test_the_four_kinds_of_pages_are_apart() -> None:
    nav = pages.navigation(read, DOCUMENTS)
    titles = [title for entry in nav for title in entry]
    kinds = ["Home", "Tutorial", "How-to guides", "Reference", "Explanation", "For maintainers"]
    assert titles == [*kinds, pages.CHINESE_TITLE, "All pages"]
    [tutorial] = [entry["Tutorial"] for entry in nav if "Tutorial" in entry]
    [guide] = [entry["Guide"] for entry in tutorial if isinstance(entry, dict) and "Guide" in entry]
    assert guide[:2] == ["guide/README.md", "guide/01-first-failover.md"]
    assert len(guide) == 29
    [chinese] = [entry[pages.CHINESE_TITLE] for entry in nav if pages.CHINESE_TITLE in entry]
    assert all(one.startswith("zh/") for one in leaves(chinese))


def test_a_command_with_a_pipe_in_a_table_is_shown_as_it_is_typed() -> None:
    """docs/install.md: the line for fish was copied with a backslash, and failed."""
    html = r"<td>a \| <code>x \| source</code></td><p><code>a \| b</code></p>"
    assert pages.without_escaped_pipes(html) == r"<td>a \| <code>x | source</code></td><p><code>a \| b</code></p>"


def test_a_page_that_no_row_names_is_missing_in_the_navigation() -> None:
    assert "lonely.md" not in set(leaves(pages.navigation(read, [*DOCUMENTS, "docs/lonely.md"])))


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("../watch.md#what-it-shows", "../watch.md#what-it-shows"),
        ("../../README.md", "../index.md"),
        ("../README.md", "../all-pages.md"),
        ("../../ARCHITECTURE.md#invariants", "../project/ARCHITECTURE.md#invariants"),
        ("../../tests/x.py", "../source/tests/x.py.md"),
        ("../../broker/log", "../source/broker/log/README.md"),
        ("../labs/", "../labs/README.md"),
        ("../adr/", "../adr/README.md"),
        ("../images/a.svg", "../images/a.svg"),
        ("https://kafka.apache.org/a.md", "https://kafka.apache.org/a.md"),
        ("#here", "#here"),
    ],
)
def test_links_lead_to_the_same_in_the_site(link: str, expected: str) -> None:
    assert sent(f"See [it]({link}), or ![that]({link}).") == f"See [it]({expected}), or ![that]({expected})."


def test_links_of_readme_are_seen_from_the_root_of_the_site() -> None:
    assert sent("[a](docs/labs/04.md) [b](CHANGELOG.md)", "README.md") == "[a](labs/04.md) [b](project/CHANGELOG.md)"


def test_blocks_stay_as_they_are_but_state_diagrams_are_drawn() -> None:
    block = "```sh\necho '[a](../../README.md)'\n- no list\n```"
    assert sent(f"text\n\n{block}\n") == f"text\n\n{block}\n"
    assert (
        sent("a\n\n```mermaid\nstateDiagram-v2\n    a --> b\n```\n\nb\n") == "a\n\nSTATEDIAGRAM-V2\n    A --> B\n\nb\n"
    )


def test_a_list_is_apart_from_the_paragraph_before_it() -> None:
    assert pages.with_lists_apart("so:\n- a\n- b\n  more\n- c\n\n1. d") == "so:\n\n- a\n- b\n  more\n- c\n\n1. d"


def test_the_search_finds_chinese_words_within_sentences() -> None:
    assert pages.with_characters_apart("HW 是高水位。ok") == "HW 是\u200b高\u200b水\u200b位\u200b。ok"


def test_a_file_that_holds_a_fence_is_shown_whole() -> None:
    shown = pages.source_page("a.md", "```sh\nls\n```\n", "text")
    assert shown.endswith("\n````text\n```sh\nls\n```\n````\n")


@pytest.mark.parametrize("path", WITH_DIAGRAMS)
def test_every_state_and_arrow_of_the_tables_is_drawn(path: str) -> None:
    blocks = re.findall(r"```mermaid\n(.*?)```", read(path), re.DOTALL)
    assert blocks
    for block in blocks:
        arrows = list(state_diagram.parsed(block))
        states = {state for arrow in arrows for state in arrow} - {state_diagram.START, state_diagram.END}
        drawn = state_diagram.svg(block)
        assert sorted(re.findall(r"<text[^>]*>([^<]+)</text>", drawn)) == sorted(states)
        assert drawn.count("<path") == len(arrows) + 1, "and the marker's"


def test_a_diagram_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="no arrow"):
        state_diagram.svg("stateDiagram-v2\n    state a {\n")


def test_states_are_in_columns_by_their_distance_from_the_start() -> None:
    arrows = list(state_diagram.parsed("[*] --> a\na --> b\nb --> a\na --> c\nc --> [*]"))
    assert state_diagram.laid_out(arrows) == [["(start)"], ["a"], ["b", "c"], ["(end)"]]


def test_the_reference_of_http_has_every_path_and_links_to_schemas_that_exist() -> None:
    page = reference.http(document())
    assert [one.path for one in ENDPOINTS if f"## {one.method} {one.path}\n" not in page] == []
    anchors = {name.lower().replace(".", "") for name in document()["components"]["schemas"]}
    links = set(re.findall(r"\]\(#([^)]+)\)", page))
    assert "error" in links
    assert links <= anchors


def test_a_schema_in_words() -> None:
    assert reference.kind({"type": "integer", "minimum": 0, "default": 3}) == "integer (at least 0, default 3)"
    assert reference.kind({"type": "array", "items": {"type": "string"}}) == "list of string"
    assert reference.kind({"enum": ["a", "b"]}) == "`a`, `b`"
    assert reference.kind({"oneOf": [{"type": "integer"}, {"const": True}]}) == "integer or `true`"
    assert reference.kind({"$ref": "#/components/schemas/step.kill_all"}) == "[step.kill_all](#stepkill_all)"
    assert reference.kind({"type": "object", "additionalProperties": {"type": "string"}}) == "object of string"
    assert reference.kind({}) == "anything"


def test_the_reference_has_every_verb_and_every_public_name_of_the_client() -> None:
    assert isinstance(root, Verbs)
    verbs = reference.verbs()
    shown = set(re.findall(r"^### (\S+)$", verbs, re.MULTILINE))
    hidden = {name for name in root.list_commands(None) if root.get_command(None, name).hidden}  # type: ignore[arg-type, union-attr]  # no context is used
    assert shown == set(root.list_commands(None)) - hidden  # type: ignore[arg-type]  # as above
    assert "### lab check\n\n```text\nUsage: tidegauge lab check" in verbs
    names = re.findall(r"^::: \S+\.(\w+)$", reference.client(), re.MULTILINE)
    assert set(tidegauge_client.__all__) <= set(names)


def test_the_reference_of_grpc_has_every_file() -> None:
    page = reference.grpc({"a.proto": "message A {}\n", "b_service.proto": "service B {}\n"})
    assert page.endswith("## b_service.proto\n\n```protobuf\nservice B {}\n```")
    assert len(reference.protos()) > 15
    assert reference.protos()[0].name.endswith("_service.proto")
