"""``--help``: verbs by purpose, common options apart, and suggestions for an unknown verb."""

from __future__ import annotations

import errno
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tidegauge.cli import reports_errors
from tidegauge_client.cli.dev import GATHERED
from tidegauge_client.cli.main import FIRST, KAFKA_TOOLS, SECTIONS, common_help, in_sections, may_be_meant, root, run

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAMES = sorted(PROJECT["entry-points"]["tidegauge.verbs"])


def shown(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run([*arguments, "--help"]) == 0
    return capsys.readouterr().out


def test_every_verb_stands_in_one_section() -> None:
    named = [name for section in SECTIONS.values() for name in section]
    assert sorted(named) == NAMES, "a verb needs its place in SECTIONS"
    assert len(set(named)) == len(named)


def test_a_verb_of_no_section_stands_in_the_last_one() -> None:
    assert list(in_sections(["up", "of-a-plugin"]))[-1] == ("Other verbs", ["of-a-plugin"])


def verbs_in(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line[:2] == "  " != line[1:3] and line.split()[0] in NAMES]


def test_help_lists_the_twenty_verbs_of_a_first_day_and_says_where_all_are(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys=capsys)
    assert sorted(verbs_in(text)) == sorted(FIRST)
    assert len(FIRST) == 20
    assert f"{len(NAMES) - 20} verbs more: tidegauge --help --all" in text
    assert sorted(verbs_in(shown("--all", capsys=capsys))) == NAMES
    assert run(["--help", "--all"]) == 0
    assert sorted(verbs_in(capsys.readouterr().out)) == NAMES


def test_all_without_help_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--all", "list-topics"]) == 2
    assert "tidegauge --help --all" in capsys.readouterr().err


def test_dev_gathers_verbs_that_stay_where_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown("dev", capsys=capsys)
    for name in GATHERED:
        assert name in NAMES
        assert f"  {name}" in text
    assert shown("dev", "replay", capsys=capsys).partition("\n")[2] == shown("replay", capsys=capsys).partition("\n")[2]
    assert run(["dev", "kill"]) == 2


def test_help_lists_the_verbs_by_section(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown("--all", capsys=capsys).splitlines()
    titles = [line.removesuffix(":") for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options", *SECTIONS]
    assert lines.index("Run a cluster:") < next(place for place, line in enumerate(lines) if line.startswith("  up "))


def commands(command: click.Command, *names: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command below one, with its name."""
    yield " ".join(names), command
    if isinstance(command, click.Group):
        for name in command.list_commands(context := click.Context(command)):
            if (below := command.get_command(context, name)) is not None:
                yield from commands(below, *names, name)


def test_help_has_one_word_for_what_may_be_repeated_and_milliseconds_for_each_limit() -> None:
    """An option that takes several values says so in the same words everywhere, and no limit is in seconds."""
    options = [
        (f"{name} {option.opts[0]}", option)
        for name, command in commands(root)
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden and not option.is_flag
    ]
    silent = [name for name, one in options if one.multiple and "may be repeated" not in (one.help or "")]
    assert silent == []
    odd = [name for name, one in options if one.opts[0] == "--timeout" and one.metavar != "MS"]
    assert odd == [], "Kafka's own --timeout is in ms"
    assert "hold-requests --rpc" in dict(options)


@pytest.mark.parametrize(
    ("word", "verbs"),
    [
        ("describ-topic", "describe-topic"),
        ("topics", "create-topic, list-topics, describe-topic, alter-topic or delete-topic"),
        ("kafka-leader-election.sh", "elect-leaders"),
        ("help", "`tidegauge --help`"),
        ("describe-topic.sh", "describe-topic"),
    ],
)
def test_an_unknown_verb_gets_suggestions(word: str, verbs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([word, "-o", "json"]) == 2
    message = json.loads(capsys.readouterr().err)["error"]["message"]
    assert message.startswith(f"No such command '{word}'. Did you mean {verbs}")


def test_an_option_in_front_of_the_verb_is_refused_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-b", "localhost:9092", "list-topics"]) == 2
    assert capsys.readouterr().err.endswith(
        "Error: No such option '-b'. A verb's options come after it: tidegauge VERB -b ...\n"
    )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the output can't be written: No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "h"), "h can't be read or written: Permission denied"),
    ],
)
def test_a_file_that_the_system_refuses_is_no_fault_of_the_verb(
    error: OSError, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @reports_errors
    def verb(output: str) -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        verb(output="text")
    assert (ended.value.code, capsys.readouterr().err) == (1, f"{words}\n")


def test_an_error_that_is_no_refusal_is_still_a_fault_to_look_for() -> None:
    @reports_errors
    def verb(output: str) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    with pytest.raises(OSError, match="Bad file descriptor"):
        verb(output="text")


def test_what_resembles_nothing_is_left_alone() -> None:
    assert may_be_meant("xyzzy", NAMES) == []


def test_kafkas_tools_lead_to_verbs_that_exist() -> None:
    assert {verb for verbs in KAFKA_TOOLS.values() for verb in verbs} <= set(NAMES)


def own_and_common(text: str) -> tuple[str, str]:
    own, _, common = text.partition("Common options:")
    return own, common


def test_common_options_stand_apart_within_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    for verb, wanted in (("produce", ["-o", "--dir", "-b", "--command-config"]), ("kill", ["--dir", "-o"])):
        own, common = own_and_common(shown(verb, capsys=capsys))
        assert [line.split()[0].rstrip(",") for line in common.splitlines() if line.strip()] == wanted
        assert all(len(line) <= 80 for line in common.splitlines())
        assert "--dir" not in own


@pytest.mark.parametrize("verb", [("scenario", "run"), ("scenario", "list"), ("simulate",), ("explore",), ("replay",)])
def test_what_means_nothing_is_not_offered_but_accepted(
    verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every verb takes --dir and --bootstrap-server, so that scripts need not know which of them ask a cluster."""
    text = shown(*verb, capsys=capsys)
    assert "--output" in text
    assert "--dir " not in text
    assert "--bootstrap-server" not in text
    context = click.Context(root)
    command = root.get_command(context, verb[0])
    for name in verb[1:]:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    assert command is not None
    assert {"--dir", "--bootstrap-server", "--command-config"} <= {
        one for param in command.params for one in param.opts
    }


def test_a_command_without_common_options_says_nothing_of_them() -> None:
    assert common_help(click.Command("bare")) == ""
