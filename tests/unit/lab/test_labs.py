"""Labs: each has its page with all sections, and its check refuses a cluster of which it knows nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.documents import blocks

from tidegauge.errors import TidegaugeError
from tidegauge_client.languages import CHINESE, ENGLISH, LANGUAGES, locale_language
from tidegauge_lab.cli.lab import lab as cli
from tidegauge_lab.cli.watch import watch
from tidegauge_lab.labs.catalogue import LABS, lab_named
from tidegauge_lab.labs.evidence import Evidence
from tidegauge_lab.labs.model import Lab, judged, passes
from tidegauge_lab.labs.texts import SECTIONS, text_of

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "labs"
HEADINGS = {ENGLISH: SECTIONS, CHINESE: ("问题", "预测", "动手", "看到了什么", "为什么")}
each_lab = pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
each_language = pytest.mark.parametrize("language", LANGUAGES)


def test_numbers_and_names_are_in_order_and_single():
    assert [lab.number for lab in LABS] == list(range(1, len(LABS) + 1))
    assert len({lab.name for lab in LABS}) == len(LABS)
    assert sorted(path.name for path in PAGES.glob("[0-9]*.md")) == [lab.page for lab in LABS]


@each_lab
def test_a_lab_is_found_by_name_and_by_number(lab: Lab):
    assert lab_named(lab.name) is lab
    assert lab_named(str(lab.number)) is lab


def test_an_unknown_lab_is_refused_with_the_one_that_may_be_meant():
    with pytest.raises(TidegaugeError, match="did you mean acks-all"):
        lab_named("ack-all")
    with pytest.raises(TidegaugeError, match="lab list"):
        lab_named("0")


@each_language
@each_lab
def test_a_page_has_its_sections_and_leads_through_start_check_and_stop(lab: Lab, language: str):
    text = text_of(lab, language)
    assert tuple(text.sections) == SECTIONS
    assert tuple(text.headings.values()) == HEADINGS[language]
    assert all(text.sections.values())
    assert text.source.startswith(f"# {lab.number}. {text.title}\n")
    run = [block.text for block in blocks(text.source) if block.is_run]
    assert f"tidegauge lab start {lab.name}" in run[0]
    assert any(f"tidegauge lab check {lab.name}" in one for one in run)
    assert "tidegauge lab stop" in run[-1]


@each_lab
def test_a_page_names_its_source(lab: Lab):
    """A KIP, or a Kafka class with its method."""
    assert re.search(r"KIP-\d+|`[A-Z]\w+\.\w+`", text_of(lab).sections["Why"])


@each_language
@each_lab
def test_the_index_has_every_lab_with_its_question(lab: Lab, language: str):
    index = (ROOT / "docs" / ("" if language == ENGLISH else language) / "labs/README.md").read_text(encoding="utf-8")
    assert f"| {lab.number} | [{text_of(lab, language).title}]({lab.page}) |" in index


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, ENGLISH),
        ({"LANG": "zh_CN.UTF-8"}, CHINESE),
        ({"LANG": "zh"}, CHINESE),
        ({"LANG": "zh-Hans"}, CHINESE),
        ({"LANG": "zhx_XX"}, ENGLISH),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, CHINESE),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8", "LC_ALL": "C"}, ENGLISH),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": ""}, CHINESE),
    ],
)
def test_the_locale_decides_on_the_language(environment: dict[str, str], language: str):
    """POSIX, Base Definitions 8.2: LC_ALL before LC_MESSAGES before LANG, and an empty one counts as unset."""
    assert locale_language(environment) == language


@each_lab
def test_nothing_passes_on_a_cluster_that_does_not_respond(lab: Lab):
    findings = judged(lab, Evidence())
    assert not passes(findings)
    assert all(one.holds or one.next for one in findings), "what does not hold says what to do"


def test_a_lab_of_zookeeper_alone_says_so_and_starts_nothing(tmp_path: Path):
    for options, exit_code, sentence in (
        (["controller", "--kraft"], 1, "lab controller needs a cluster in ZooKeeper mode: it is about a broker"),
        (["acks-1", "--kraft", "--zookeeper-port", "2181"], 2, "A cluster in KRaft mode has no ZooKeeper"),
    ):
        done = CliRunner().invoke(cli, ["start", *options, "--dir", str(tmp_path / "c")])
        assert (done.exit_code, sentence in " ".join(done.output.split())) == (exit_code, True), done.output
    assert not (tmp_path / "c").exists()
    done = CliRunner().invoke(watch, ["--kraft", "--dir", str(tmp_path / "c")])
    assert (done.exit_code, "--kraft is for the cluster that --lab or --scenario starts" in done.output) == (2, True)
