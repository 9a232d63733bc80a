"""A command that a sentence advises means the cluster that the sentence is about, and no other one (--dir)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tidegauge.cli import reports_errors, say, verb_options
from tidegauge.cluster_directory import DIRECTORY_VARIABLE, command_for, of_directory, of_servers
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.admin import Admin
from tidegauge_client.bootstrap import resolve_bootstrap
from tidegauge_client.cli import explain as explain_verb
from tidegauge_client.cluster_file import ClusterFile, load_cluster_file
from tidegauge_client.sentences import Sentence
from tidegauge_lab.cli.lab import lab
from tidegauge_lab.cli.zk_tree import _start_of
from tidegauge_lab.labs.catalogue import LABS
from tidegauge_lab.labs.checking import check
from tidegauge_lab.labs.running import end
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.plan import next_plan
from tidegauge_lab.local.wanted import Wanted

ROOT = Path(__file__).parents[3]
CHANGES_A_CLUSTER = re.compile(r"(?<!`)`tidegauge (?:down|stop|kill|pause|resume|start|restore|snapshot|lab st\w+)\b")


def cluster_in(directory: Path, *, zookeeper_managed: bool = True) -> Path:
    directory.mkdir()
    ClusterFile("127.0.0.1:1", zookeeper_managed=zookeeper_managed, profile="fast", brokers=[]).save(directory)
    return directory


def test_a_directory_that_verbs_find_by_themselves_needs_no_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    assert command_for(Path("tidegauge-data"), "down --purge") == "`tidegauge down --purge`"
    assert command_for(tmp_path / "tidegauge-data", "down --purge") == "`tidegauge down --purge`"
    assert command_for(tmp_path / "my cluster", "down") == f"`tidegauge down --dir '{tmp_path}/my cluster'`"
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "my cluster"))
    assert command_for(tmp_path / "my cluster", "down") == "`tidegauge down`"
    assert command_for(Path("tidegauge-data"), "down") == "`tidegauge down --dir tidegauge-data`"


def test_what_is_in_a_labs_way_is_deleted_where_it_is(tmp_path: Path) -> None:
    """Without its directory the advised command deleted the cluster in ./tidegauge-data."""
    there = cluster_in(tmp_path / "one")
    refused = CliRunner().invoke(lab, ["start", LABS[0].name, "--dir", str(there)])
    assert refused.exit_code == 1
    assert f"`tidegauge down --purge --dir {there}` deletes it" in refused.stderr
    with pytest.raises(TidegaugeError, match=re.escape(f"`tidegauge down --dir {there}` stops it")):
        end(there)
    with pytest.raises(TidegaugeError, match=re.escape(f"`tidegauge lab start NAME --dir {there}` starts one")):
        check(there)


def test_what_contradicts_a_cluster_is_removed_where_it_is(tmp_path: Path) -> None:
    there = cluster_in(tmp_path / "one")
    with pytest.raises(TidegaugeError, match=re.escape(f"`tidegauge down --purge --dir {there}`")):
        next_plan(there, load_cluster_file(there), Wanted(zookeeper="127.0.0.1:9"))


def test_a_cluster_is_started_where_it_was_looked_for(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    with pytest.raises(TidegaugeError, match=re.escape(f"`tidegauge up -d --dir {nowhere}`")):
        resolve_bootstrap(None, nowhere, {})
    with pytest.raises(TidegaugeError, match=re.escape(f"`tidegauge up -d --dir {nowhere}`")):
        LocalCluster(nowhere)


def test_zookeeper_is_started_by_the_cluster_alone_whose_own_it_is(tmp_path: Path) -> None:
    """`start --zookeeper` leaves one alone that `up --zookeeper` was given."""
    own = cluster_in(tmp_path / "one")
    assert f"start it with `tidegauge start --zookeeper --dir {own}`" in _start_of(own)
    assert "start it on its own machine" in _start_of(cluster_in(tmp_path / "two", zookeeper_managed=False))


def test_no_sentence_of_the_lab_leaves_out_which_cluster_it_changes() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "lab" / "tidegauge_lab").rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if CHANGES_A_CLUSTER.search(line) and '"""' not in line
    ] == []


@click.command()
@verb_options
@reports_errors
def failing(output: str, directory: Path, bootstrap_server: str | None) -> None:
    """Stand for a verb whose sentences come from a library that does not know how the cluster was named."""
    say("followed by `tidegauge watch`, and started by `tidegauge up`")
    raise TidegaugeError(ErrorCode.INVALID_REQUEST, "see `tidegauge list-topics`, `tidegauge kill 1`, `tidegauge demo`")


@pytest.mark.parametrize(
    ("words", "talk", "advice"),
    [
        ([], "`tidegauge watch`", "`tidegauge list-topics`, `tidegauge kill 1`, `tidegauge demo`"),
        (
            ["--dir", "/a b"],
            "`tidegauge watch --dir '/a b'`",
            "`tidegauge list-topics --dir '/a b'`, `tidegauge kill 1 --dir '/a b'`, `tidegauge demo`",
        ),
        (
            ["--dir", "/a", "-b", "h:1,h:2"],
            "`tidegauge watch -b h:1,h:2`",
            "`tidegauge list-topics -b h:1,h:2`, `tidegauge kill 1`, `tidegauge demo`",
        ),
    ],
)
def test_commands_of_the_client_library_mean_the_cluster_that_the_verb_was_given(
    words: list[str], talk: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands about things that no address can reach, such as a process, or about another cluster are unchanged."""
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    monkeypatch.delenv("TIDEGAUGE_BOOTSTRAP_SERVER", raising=False)
    said = CliRunner().invoke(failing, words)
    assert said.stderr.splitlines() == [
        f"followed by {talk}, and started by `tidegauge up`",
        f"INVALID_REQUEST (42): see {advice}",
    ]
    as_json = CliRunner().invoke(failing, [*words, "-o", "json"])
    assert json.loads(as_json.stderr.splitlines()[-1])["error"]["message"] == f"see {advice}"


def test_a_command_that_names_its_cluster_stays_as_it_is(tmp_path: Path) -> None:
    for command in ("`tidegauge down --dir /else`", "`tidegauge explain t-0 -b h:1`"):
        assert of_directory(f"see {command}", tmp_path) == of_servers(f"see {command}", " -b h:9") == f"see {command}"


def test_what_an_explanation_advises_means_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Sentence(about="leader", text="it has none", rule="a rule", change="a leader: `tidegauge explain t-0`")

    async def gathered(_: Admin) -> None:
        return None

    @click.command()
    @verb_options
    def explaining(output: str, directory: Path, bootstrap_server: str | None) -> None:
        kind = explain_verb._Explanation(gathered, lambda _: [one], lambda _: "t-0: no leader", lambda _: {}, "broker")
        explain_verb._show(["127.0.0.1:1"], directory, output, "en", kind)

    wanted = "a leader: `tidegauge explain t-0 -b h:1`"
    assert CliRunner().invoke(explaining, ["-b", "h:1"]).stdout.splitlines() == [
        "t-0: no leader",
        "",
        "Leader",
        "  it has none",
        "    Rule: a rule.",
        f"    Changes with: {wanted}.",
    ]
    found = json.loads(CliRunner().invoke(explaining, ["-b", "h:1", "-o", "json"]).stdout)
    said = {"about": "leader", "text": "it has none", "rule": "a rule", "change": wanted}
    assert found == {"sentences": [said | {"broker": None, "wait_ms": None}]}
