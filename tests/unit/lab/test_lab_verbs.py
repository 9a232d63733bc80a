"""``tidegauge lab``: refusals before anything is started or deleted, and output without a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from tidegauge_client.cli.main import root
from tidegauge_client.cluster_file import FILE_NAME, ClusterFile
from tidegauge_lab.cli.lab import lab, other_addresses
from tidegauge_lab.labs.catalogue import LABS
from tidegauge_lab.labs.texts import parsed
from tidegauge_lab.local.layout import LAB_NOTE, remove_cluster


def run(*arguments: str, locale: str = "C.UTF-8") -> Result:
    return CliRunner(env={"LC_ALL": locale}).invoke(lab, arguments)


@pytest.fixture
def another_cluster(tmp_path: Path) -> Path:
    ClusterFile("127.0.0.1:1", zookeeper_managed=True, profile="fast", brokers=[]).save(tmp_path)
    return tmp_path


def test_list_has_each_lab_with_its_question():
    lines = run("list").output.splitlines()
    assert [line.split()[:2] for line in lines] == [[str(one.number), one.name] for one in LABS]
    found = json.loads(run("list", "-o", "json").output)
    assert [one["name"] for one in found] == [one.name for one in LABS]
    assert all(one["question"].endswith("?") for one in found)


def test_show_has_the_explanation_and_no_comments_of_tests():
    shown = run("show", "min-insync-replicas").output
    assert "\nWhy\n" in shown
    assert "<!--" not in shown


def test_a_page_is_shown_without_its_link_to_the_other_language():
    assert run("show", "acks-all").output.startswith("1. With acks=all, does a producer wait for a dead follower?\n\nQ")
    title, below = run("show", "acks-all", "--language", "zh").output.splitlines()[:3:2]
    assert (title.split()[0], below) == ("1.", "问题")


def test_pages_are_in_the_language_of_the_locale_unless_an_option_says_otherwise():
    assert "刚写进去的消息" in run("list", locale="zh_CN.UTF-8").output
    assert "\n为什么\n" in run("show", "acks-1", locale="zh_CN.UTF-8").output
    assert "\nWhy\n" in run("show", "acks-1", "--language", "en", locale="zh_CN.UTF-8").output
    assert json.loads(run("show", "3", "--language", "zh", "-o", "json").output)["question"].startswith(
        "刚写进去的消息"
    )


@pytest.mark.parametrize("verb", [["start", "acks-all"], ["stop"]])
def test_a_cluster_that_is_no_labs_is_left_alone(verb: list[str], another_cluster: Path):
    done = run(*verb, "--dir", str(another_cluster))
    assert done.exit_code == 1
    assert "tidegauge down" in done.output
    assert (another_cluster / FILE_NAME).exists()


def test_a_second_start_names_the_lab_that_is_there(another_cluster: Path):
    (another_cluster / LAB_NOTE).write_text('{"lab": "acks-1"}')
    done = run("start", "acks-all", "--dir", str(another_cluster))
    assert done.exit_code == 1
    assert "lab acks-1 is in" in done.output
    assert (another_cluster / FILE_NAME).exists()


def test_check_names_the_lab_that_the_cluster_belongs_to(another_cluster: Path):
    (another_cluster / LAB_NOTE).write_text('{"lab": "acks-1"}')
    done = run("check", "acks-all", "--dir", str(another_cluster))
    assert done.exit_code == 1
    assert "belongs to lab acks-1" in done.output


def test_check_and_stop_without_a_cluster(tmp_path: Path):
    assert run("check", "--dir", str(tmp_path)).exit_code == 1
    assert run("check", "nothing", "--dir", str(tmp_path)).output.startswith(
        "INVALID_REQUEST (42): there is no lab 'nothing'"
    )
    done = run("stop", "--dir", str(tmp_path))
    assert (done.exit_code, done.output) == (0, f"There is no lab in {tmp_path}.\n")


def test_an_interrupted_start_says_that_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tidegauge_lab.cli.lab.begin", interrupted)
    done = run("start", LABS[0].name, "--dir", str(tmp_path / "new"))
    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr == "Interrupted: nothing is left running, and the lab's cluster is deleted.\n"


@pytest.mark.parametrize("note", ["", "{}", "[]", "none", '{"lab": 7}'])
def test_a_damaged_note_is_no_lab(note: str, another_cluster: Path):
    (another_cluster / LAB_NOTE).write_text(note)
    done = run("stop", "--dir", str(another_cluster))
    assert done.exit_code == 1
    assert (another_cluster / FILE_NAME).exists()


def test_a_cluster_that_is_deleted_takes_its_note_along(another_cluster: Path):
    """A later cluster in the same directory is not the lab's, and ``lab stop`` must not delete it."""
    (another_cluster / LAB_NOTE).write_text('{"lab": "acks-1"}')
    remove_cluster(another_cluster)
    assert not another_cluster.exists()


def test_a_page_is_taken_apart_without_its_comments():
    page = (
        "# 7. Why?\n\n[English](x.md)\n\n## Question\n\nq\n\n## Predict\n\np\n\n"
        "## Do\n\n<!-- ends with 1 -->\n```sh\nfalse\n```\n\n## What you see\n\ns\n\n## Why\n\n[w](w.md)\n\nw\n"
    )
    text = parsed(page)
    assert (text.title, text.sections["Question"]) == ("Why?", "q")
    assert text.sections["Do"] == "```sh\nfalse\n```"
    assert "<!--" not in text.shown
    assert "English" not in text.shown
    assert text.shown.endswith("[w](w.md)\n\nw\n")


@pytest.mark.parametrize(
    ("words", "begin", "completed"),
    [
        (("lab", "start"), "acks-a", [("plain", "acks-all")]),
        (("lab", "check"), "acks-a", [("plain", "acks-all")]),
        (("watch", "--lab"), "acks-a", [("plain", "acks-all")]),
        (("scenario", "run"), "hanging-t", [("plain", "hanging-transaction")]),
        (("watch", "--scenario"), "hanging-t", [("plain", "hanging-transaction")]),
        (("scenario", "show"), "./mi", [("file", "./mi")]),
    ],
)
def test_tab_completes_names_of_labs_and_scenarios(
    words: tuple[str, ...], begin: str, completed: list[tuple[str, str]]
) -> None:
    """docs/install.md; if no scenario begins so, the shell completes files."""
    found = ShellComplete(root, {}, "tidegauge", "_TIDEGAUGE_COMPLETE").get_completions(list(words), begin)
    assert [(one.type, one.value) for one in found] == completed


def test_a_port_is_said_to_be_taken_only_where_the_user_has_not_chosen_another_one():
    assert other_addresses("127.0.0.1:9092", is_chosen=False) == []
    taken, chosen = (" ".join(other_addresses("127.0.0.1:9095", is_chosen=one)) for one in (False, True))
    assert taken.startswith("Port 9092 was not free: the commands above have these addresses")
    assert chosen.startswith("The commands above have these addresses, and the page has 127.0.0.1:9092")
