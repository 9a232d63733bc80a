"""``tidegauge scenario list|show|run``: stories of failures, played on real processes.

Contract (docs/scenarios.md): ``list`` prints a line each: name, two spaces, one sentence. ``run`` starts a
cluster of its own in a temporary directory on free ports and takes it down at the end, also on failure, on Ctrl-C, and
if it is killed; it never touches the one in ``--dir``. Exit 0 when every expectation held, also where the
expectation is that data is lost; 1 when one did not, or the file is wrong; 124 when the scenario's limit is over. In
text the story has a sentence for each step, its author's notes, and the states; ``--verbose`` adds the steps as the
file has them. Text is in Chinese if the locale is Chinese; ``--language`` decides otherwise.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import click

from tidegauge.cli import EXIT_FAILED, fail, offline_verb_options, print_json, print_line, print_text, say
from tidegauge_client.cli.common import language_option
from tidegauge_client.cluster_file import KRAFT_MODE
from tidegauge_client.languages import CHINESE
from tidegauge_lab.cli.common import complete_scenario, is_kraft, kraft_option
from tidegauge_lab.cli.verbs import ZOOKEEPER_ADDRESS, lab_verb
from tidegauge_lab.scenario.chinese import in_chinese, introduction_in_chinese, title_in_chinese
from tidegauge_lab.scenario.loader import in_kraft, load, parse, text_of
from tidegauge_lab.scenario.outcome import as_json, introduction
from tidegauge_lab.scenario.runner import play
from tidegauge_lab.scenario.themes import cure_of, is_about, theme_of, themes


@click.group()
@offline_verb_options
@click.pass_context
def scenario(context: click.Context, output: str, directory: Path, bootstrap_server: str | None) -> None:
    """Stories of failures, played on real processes."""
    del directory, bootstrap_server
    # Options may come anywhere after the verb: the ones given here are defaults of the subcommand.
    context.default_map = {name: {"output": output} for name in ("list", "show", "run")}


@scenario.command("list")
@click.option("--theme", type=click.Choice([one.name for one in themes()]), help="Only scenarios of this theme.")
@click.option("--find", metavar="WORDS", default="", help="Only those with all of these words in name, title or text.")
@language_option
@offline_verb_options
@lab_verb
def list_scenarios(
    theme: str | None, find: str, language: str, output: str, directory: Path, bootstrap_server: str | None
) -> None:
    """List the shipped scenarios by themes: a line each, name and one sentence; a cure after its loss."""
    del directory, bootstrap_server
    found = [
        (one, story)
        for group in themes()
        if theme in {None, group.name}
        for one in group.scenarios
        if is_about(find, one, (story := load(one)).title, story.teaches, story.rule, *_texts_of(one, language))
    ]
    if output == "json":
        print_json(
            [
                {"name": name, "title": story.title, "theme": theme_of(name).name, "cure": cure_of(name)}
                for name, story in found
            ]
        )
        return
    before = ""
    for name, story in found:
        if (title := theme_of(name).title[language]) != before and sys.stdout.isatty():
            print_text(f"{title}:" if not before else f"\n{title}:")
        before = title
        print_text(f"{name}  {title_in_chinese(name) if language == CHINESE else story.title}")


def _texts_of(name: str, language: str) -> tuple[str, ...]:
    """Return the texts of a shipped scenario in another language than English."""
    return (title_in_chinese(name), *introduction_in_chinese(name)) if language == CHINESE else ()


@scenario.command()
@click.argument("name", metavar="NAME-or-FILE", shell_complete=complete_scenario)
@offline_verb_options
@lab_verb
def show(name: str, output: str, directory: Path, bootstrap_server: str | None) -> None:
    """Show a scenario's file, after a check of it."""
    del directory, bootstrap_server
    text, source = text_of(name)
    checked = parse(text, source)
    if output == "json":
        print_json(as_json(checked))
    else:
        print_text(text, nl=not text.endswith("\n"))


@scenario.command()
@click.argument("name", metavar="NAME-or-FILE", shell_complete=complete_scenario)
@click.option("--keep", is_flag=True, help="Keep the directory with the cluster's data and logs.")
@click.option("--verbose", is_flag=True, help="Also show each step as the file has it, and its expectations.")
@click.option(
    "--zookeeper",
    type=ZOOKEEPER_ADDRESS,
    metavar="HOST:PORT",
    help="Use this ZooKeeper, under a chroot of its own, instead of starting one.",
)
@kraft_option
@language_option
@offline_verb_options
@lab_verb
def run(
    name: str,
    language: str,
    output: str,
    directory: Path,
    bootstrap_server: str | None,
    zookeeper: str | None,
    *,
    kraft: bool,
    keep: bool,
    verbose: bool,
) -> None:
    """Play a scenario on a cluster of its own, and check what it expects."""
    del directory, bootstrap_server
    story = in_kraft(name) if is_kraft(asked=kraft) else load(name)
    if zookeeper is not None and story.mode == KRAFT_MODE:
        raise click.UsageError(
            f"{story.name} plays in KRaft mode, whose cluster has no ZooKeeper: leave --zookeeper out"
        )
    as_text = output != "json"

    def tell(line: str) -> None:
        if as_text:
            print_line(line)

    speak = in_chinese().translated if as_text and language == CHINESE else str
    for line in introduction(story, speak):
        tell(line)
    with _ending_on_signals() as check, _home(keep=keep) as home:
        outcome = play(
            story,
            home,
            zookeeper=zookeeper,
            tell=tell,
            check=check,
            verbose=verbose,
            speak=speak,
            is_temporary=not keep,
        )
    if not as_text:
        print_json(outcome.as_json())
    if outcome.failure:
        fail(speak(f"{story.name} failed: {outcome.failure}"), output, exit_code=EXIT_FAILED)
    tell(speak(f"{story.name}: {held(outcome.expectations)} ({outcome.seconds:.1f} s)."))


def held(expectations: int) -> str:
    """Say that the expectations held."""
    if expectations == 0:
        return "played to its end; it expects nothing"
    return "its one expectation held" if expectations == 1 else f"all {expectations} expectations held"


@contextlib.contextmanager
def _home(*, keep: bool) -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="tidegauge-scenario-"))
    try:
        yield home
    finally:
        if keep:
            say(f"The cluster's data and logs are in {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def _ending_on_signals() -> Iterator[Callable[[], None]]:
    """SIGTERM ends a scenario as Ctrl-C does: the cluster is taken down.

    Gives a check that raises once a signal has come: an exception that a signal raises is lost where Python happens to
    be in a destructor, or in code that can't pass it on.
    """
    came: list[int] = []

    def interrupt(number: int, _: object) -> NoReturn:
        came.append(number)
        raise KeyboardInterrupt

    def check() -> None:
        if came:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
