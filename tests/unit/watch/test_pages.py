"""Pages beside the cluster: Markdown as HTML, labs, the pages of docs (prose.py, pages.py)."""

from __future__ import annotations

import re
from itertools import groupby

import pytest

from tidegauge.errors import TidegaugeError
from tidegauge_lab.labs.catalogue import LABS
from tidegauge_lab.labs.model import Lab
from tidegauge_lab.labs.texts import SECTIONS
from tidegauge_lab.scenario.loader import shipped_names
from tidegauge_lab.scenario.themes import themes
from tidegauge_lab.watch.pages import contents, document, lab_page, link_of_lab
from tidegauge_lab.watch.prose import as_html


def nowhere(_: str) -> str:
    return ""


def test_html_in_the_source_is_text():
    """Nothing that a page says can become markup or run."""
    shown = as_html("<script>alert(1)</script>\n\nA <b onclick='x()'>word</b>, `<i>`.\n\n```sh\n<u>\n```\n", nowhere)
    assert not re.findall(r"<(?:script|b|i|u)\b", shown)
    assert "&lt;script&gt;" in shown
    assert "<code>&lt;i&gt;</code>" in shown
    assert '<code class="language-sh">&lt;u&gt;' in shown


@pytest.mark.parametrize("target", ["javascript:alert(1)", "data:text/html,x", "vbscript:x"])
def test_no_link_runs_anything(target: str):
    assert "<a" not in as_html(f"[press]({target})", lambda _: "#somewhere")


def test_a_link_goes_where_the_page_has_a_place_or_is_text():
    places = {"02-b.md": "#lab-b", "../guide.md": "docs/guide.md"}
    source = "[here](02-b.md), [there](../guide.md), [lost](gone.md), [far](https://kafka.apache.org/)"
    shown = as_html(source, lambda target: places.get(target, ""))
    assert '<a href="#lab-b">here</a>' in shown
    assert '<a href="docs/guide.md" target="_blank">there</a>' in shown, "the cluster stays in view"
    assert re.search(r'<a href="https://kafka.apache.org/"[^>]*rel="noreferrer"[^>]*>far</a>', shown)
    assert "lost" in shown
    assert shown.count("<a ") == 3


def test_headings_have_the_names_that_links_use():
    assert '<h2 id="what-the-command-line-sees">' in as_html("## What the `command` line sees!", nowhere)


@pytest.mark.parametrize("lab", LABS, ids=[lab.name for lab in LABS])
def test_each_lab_has_its_sections_and_no_link_that_is_lost(lab: Lab):
    page = lab_page(lab.name)
    assert list(page["sections"]) == list(SECTIONS)
    everything = "".join(page["sections"].values())
    assert "&lt;!--" not in everything, "comments are for tests"
    assert "<pre>" in page["sections"]["Do"]
    for link in re.findall(r'href="([^"]*)"', everything):
        if link.startswith("docs/"):
            assert document(link.removeprefix("docs/").partition("#")[0]) is not None, link
        else:
            assert link.startswith(("#lab-", "https://")), link


def test_a_lab_that_links_another_opens_it():
    assert link_of_lab("02-min-insync-replicas.md") == "#lab-min-insync-replicas"
    assert link_of_lab("../mixed-clusters.md#what-the-command-line-sees") == (
        "docs/mixed-clusters.md#what-the-command-line-sees"
    )
    assert link_of_lab("../nothing.md") == ""
    assert '<a href="docs/guide/02-acks-and-min-insync-replicas.md"' in lab_page("acks-all")["sections"]["Why"]


def test_there_is_no_lab_of_another_name():
    with pytest.raises(TidegaugeError, match="did you mean acks-all"):
        lab_page("acks-al")


def test_all_labs_and_stories_can_be_chosen():
    found = contents()
    assert [one["name"] for one in found["labs"]] == [lab.name for lab in LABS]
    assert sorted(one["name"] for one in found["stories"]) == sorted(shipped_names())
    by_theme = [list(group) for _, group in groupby(one["theme"] for one in found["stories"])]
    assert len(by_theme) == len(themes()), "stories of one theme stand together"
    assert all(one["title"] for one in [*found["labs"], *found["stories"]])


def test_a_page_of_docs_is_html_and_a_picture_a_picture():
    page = document("watch.md")
    assert page is not None
    assert page[1] == "text/html"
    assert "<title>tidegauge watch</title>" in str(page[0])
    assert "<table>" in str(page[0])
    assert document("images/watch.png") is not None


@pytest.mark.parametrize("name", ["../README.md", "../pyproject.toml", "/etc/passwd", "guide", "", "nothing.md"])
def test_nothing_else_is_read(name: str):
    assert document(name) is None
