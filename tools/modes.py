"""The tables of docs/which-mode.md: the tests of each mode. Scenarios and labs by themselves, the rest by tests.

A row's cell names a test, by file and function, or says in a sentence why there is none. A test holds that each of
these tests is there, and that the page has these tables; ``make modes`` writes them.
"""

from __future__ import annotations

from typing import NamedTuple

from tools.mode_files import FILES, LONG, QUICK, ZOOKEEPER_ALONE

from tidegauge.page_sections import with_section
from tidegauge_client.cluster_file import KRAFT_MODE
from tidegauge_lab.labs.catalogue import LABS
from tidegauge_lab.scenario.group_steps import StartConsumer
from tidegauge_lab.scenario.loader import load, shipped_names
from tidegauge_lab.scenario.model import Scenario
from tidegauge_lab.scenario.share_steps import StartMember
from tidegauge_lab.scenario.transaction_steps import StartProducer

PAGE = "docs/which-mode.md"
BEGIN, END = "<!-- modes of {}: begin -->", "<!-- modes of {}: end -->"


class Row(NamedTuple):
    """A behaviour, and its test in each mode: ``FILE::FUNCTION``, or a sentence."""

    what: str
    zookeeper: str
    kraft: str


ROWS = (
    Row(
        "Python's Kafka clients, through a killed leader and a controlled shutdown",
        "test_kafka_clients::test_confluent_kafka_produces_and_consumes_through_a_killed_leader",
        "test_kraft_mode::test_brokers_on_tidegauges_controllers",
    ),
    Row(
        "brokers of Apache Kafka in the same cluster",
        "test_mixed_clusters::",
        "test_kraft_mode::test_brokers_of_both_kinds_on_kafkas_controller",
    ),
    Row(
        "Apache Kafka's controllers",
        "test_apache_kafka_controller::",
        "test_mixed_quorum::",
    ),
    Row(
        "SCRAM users, access control lists, quotas, super users",
        "test_kafka_security::test_lists_decide_what_is_written_read_and_seen",
        "test_kraft_security::test_what_is_not_allowed_is_refused_and_what_is_allowed_is_done",
    ),
    Row(
        "strangers at the controllers' listener, and an Envelope of theirs",
        "there is no such listener: controllers are brokers",
        "test_kraft_security::test_an_ordinary_principal_at_the_controllers_listener_changes_nothing",
    ),
    Row(
        "SASL and TLS of the controllers' listener",
        "there is no such listener: controllers are brokers",
        "test_quorum_secured::test_a_tool_needs_credentials_and_the_right_ones",
    ),
    Row(
        "a broker parted from what keeps the metadata",
        "test_lab_faults::",
        "test_kraft_cluster::test_a_broker_that_reaches_no_controller_is_fenced_and_comes_back",
    ),
    Row(
        "the active controller killed, its role taken by another",
        "test_controller_elections::",
        "test_kraft_cluster::test_the_active_controller_is_killed_by_its_role_and_comes_back",
    ),
    Row(
        "a session or membership ended at once",
        "test_lab_faults::",
        "test_kraft_cluster::test_a_dead_broker_is_fenced_at_once_if_the_kill_asks_for_it",
    ),
    Row(
        "snapshot and restore of the whole cluster",
        "test_control_http::test_a_snapshot_brings_back_records_and_topics",
        "test_kraft_cluster::test_a_snapshot_of_the_quorum_comes_back",
    ),
    Row(
        "the pytest fixture",
        "test_pytest_plugin::test_a_project_has_a_cluster_its_state_and_its_faults",
        "test_kraft_projects::test_a_project_has_a_cluster_in_kraft_mode",
    ),
    Row(
        "scenarios",
        "test_scenarios::test_other_story",
        "test_scenarios::test_a_story_in_kraft_mode",
    ),
    Row(
        "labs",
        "test_labs::test_a_lab_leads_where_its_page_says_and_not_before",
        "test_kraft_projects::test_a_lab_leads_to_the_same_in_kraft_mode",
    ),
    Row(
        "the GitHub action",
        "test_action::test_the_step_starts_a_cluster_and_gives_out_its_addresses",
        "test_action::test_the_step_starts_a_cluster_and_gives_out_its_addresses",
    ),
    Row(
        "containers of docker-compose",
        "tests/compose, with an engine",
        "test_compose_kraft::test_the_services_of_the_file_are_a_cluster_that_outlives_a_controller_and_a_broker",
    ),
)


BOTH = "test_both_modes"


def _cell(text: str) -> str:
    file, separator, function = text.partition("::")
    if not separator:
        return text
    return f"yes: `tests/integration/{file}.py`" + (f", `{function}`" if function else "")


def rows_table() -> str:
    """Return the table of what tests try."""
    lines = [f"| {row.what} | {_cell(row.zookeeper)} | {_cell(row.kraft)} |" for row in ROWS]
    files = sorted((QUICK | FILES | LONG).items(), key=lambda file: file[1].lower())
    lines += [
        f"| {what} | yes: `tests/integration/{name}.py` | yes: the same file, by `{BOTH}.py` |" for name, what in files
    ]
    return "\n".join(["| | ZooKeeper mode | KRaft mode |", "|---|---|---|", *lines])


def files_table() -> str:
    """Return the table of test files of ZooKeeper mode alone."""
    lines = [f"| `tests/integration/{name}.py` | {why} |" for name, why in sorted(ZOOKEEPER_ALONE.items())]
    return "\n".join(["| file of tests | why not in KRaft mode |", "|---|---|", *lines])


def scenarios_table() -> str:
    """Return the table of the scenarios of one mode alone."""
    found = [load(name) for name in shipped_names()]
    both = [one.name for one in found if one.mode != KRAFT_MODE and not one.zookeeper_only]
    rows = [(one.name, f"KRaft: {_why_kraft(one)}") for one in found
            if one.mode == KRAFT_MODE]  # fmt: skip
    rows += [(one.name, f"ZooKeeper: {' '.join(one.zookeeper_only.split())}") for one in found if one.zookeeper_only]
    rows += [(f"lab `{one.name}`", f"ZooKeeper: {one.zookeeper_only}") for one in LABS if one.zookeeper_only]
    rows += [(f"lab `{one.name}`", f"KRaft: {one.kraft_only}") for one in LABS if one.kraft_only]
    lines = [f"| {name if name.startswith('lab') else f'`{name}`'} | {why} |" for name, why in rows]
    labs = [one.name for one in LABS if not (one.zookeeper_only or one.kraft_only)]
    head = (
        f"{len(both)} scenarios and {len(labs)} labs play in both modes: {', '.join(f'`{name}`' for name in both)}; "
        f"labs {', '.join(f'`{name}`' for name in labs)}. Of one mode alone:"
    )
    return "\n".join([head, "", "| | mode |", "|---|---|", *lines])


def page(text: str) -> str:
    """Return the page with its tables."""
    for name, table in (("tests", rows_table()), ("files", files_table()), ("stories", scenarios_table())):
        text = with_section(text, BEGIN.format(name), END.format(name), table)
    return text


def _why_kraft(scenario: Scenario) -> str:
    """Return why a scenario plays in KRaft mode alone."""
    if any(isinstance(step, StartMember) for step in scenario.steps):
        return "it is about a share group, which no release of Kafka has in ZooKeeper mode"
    if any(isinstance(step, StartProducer) for step in scenario.steps):
        return "it is about transactions v2, which no release of Kafka has in ZooKeeper mode"
    if any(isinstance(step, StartConsumer) for step in scenario.steps):
        return "it is about the consumer protocol (KIP-848), which no release of Kafka has in ZooKeeper mode"
    return "it is about a quorum, or about eligible leader replicas"
