"""A scenario's steps as sentences: every verb has one, and it says what the step does."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tidegauge_lab.scenario import broker_steps, fault_steps, steps
from tidegauge_lab.scenario.loader import load, parse, shipped_names
from tidegauge_lab.scenario.narration import LEGEND, narrated
from tidegauge_lab.scenario.outcome import introduction, settings_lines

HEAD = "title: A story.\ncluster: {brokers: 3}\ntopics:\n  - {name: story, assignment: [0, 1, 2]}\nsteps:\n  - "

CASES = [
    ("produce: m1", "Produce m1 with acks=all"),
    ("produce: {values: [a, b], acks: 1, via: 2}", "Produce a and b with acks=1 through broker 2, whoever leads"),
    ("produce: {values: a, answer: later}", "Produce a with acks=all, without waiting for the response"),
    ("produce: {values: a, error: NOT_ENOUGH_REPLICAS}",
     "Produce a with acks=all, which is refused with NOT_ENOUGH_REPLICAS"),
    ("create_topic: {name: t, assignment: [0, 1]}", "Create the topic t with replicas on brokers 0, 1"),
    ("create_topic: {name: t, assignment: 0, error: REQUEST_TIMED_OUT}",
     "Create the topic t with replicas on brokers 0: REQUEST_TIMED_OUT"),
    ("hold_fetch: [1, 2]", "Hold the fetches of brokers 1 and 2: from here on one round at a time"),
    ("hold_fetch: {brokers: 1, release: true}", "Release broker 1: fetches go on by themselves"),
    ("step_fetch: {broker: 1, rounds: 2}", "Let broker 1 do 2 fetch rounds"),
    ("step_fetch: {broker: 1, until: request}",
     "Let broker 1 do one fetch round up to the leader's receipt; the response is withheld"),
    ("kill: [0, 1, 2]", "Kill brokers 0, 1 and 2 (SIGKILL)"),
    ("stop: 0", "Stop broker 0 by a controlled shutdown"),
    ("pause: 0", "Pause broker 0 (SIGSTOP)"),
    ("resume: 0", "Resume broker 0 (SIGCONT)"),
    ("start: {brokers: 1, held: story-0, after_power_cut: true}",
     "Start broker 1 after a power loss: without unflushed data, with the fetches of story-0 held"),
    ("isolate: {broker: 1, from: brokers, direction: in}",
     "Isolate broker 1 from all other brokers, incoming calls only"),
    ("isolate: {broker: 1, from: [0, 2]}", "Isolate broker 1 from brokers 0 and 2"),
    ("isolate: {broker: 1, from: clients, delay_ms: 20}",
     "Delay each message between broker 1 and all clients by 20 ms"),
    ("isolate: {broker: 1, from: clients, drop: 0.5}",
     "Drop calls between broker 1 and all clients with probability 0.5"),
    ("heal: 1", "Heal the connections of broker 1"),
    ("inject_error: {broker: 1, rpc: Produce, error: NOT_CONTROLLER}",
     "Make Produce calls at broker 1 fail with NOT_CONTROLLER"),
    ("hold_requests: {broker: 1, rpc: JoinGroup}", "Hold JoinGroup requests at broker 1"),
    ("hold_requests: {broker: 1, rpc: OffsetCommit, after_effect: true, group: g}",
     "Hold the responses to OffsetCommit of group g at broker 1"),
    ("wait_held: {broker: 1, count: 2}", "Wait until broker 1 holds 2 requests"),
    ("release_requests: 1", "Release the requests that broker 1 holds"),
    ("release_requests: {brokers: 1, which: responses}", "Release the responses that broker 1 holds"),
    ("inject_disk: {broker: 1, errno: EIO}", "Make disk operations of broker 1 fail with EIO"),
    ("inject_disk: {broker: 1, delay_ms: 5}", "Make disk operations of broker 1 take 5 ms longer"),
    ("inject_disk: {broker: 1, delay_ms: 5, operation: sync, path: t-0, times: 2, nth: 3}",
     "Make sync operations on files with 't-0' in their path of broker 1 take 5 ms longer, 2 times after 2 that pass"),
    ("inject_error: {broker: 1, rpc: Fetch, error: NOT_CONTROLLER, topic: story, caller: clients, times: 0}",
     "Make Fetch calls from clients about story at broker 1 fail with NOT_CONTROLLER, without a limit"),
    ("skew_clock: {broker: 1, offset_ms: -3600000}", "Set the wall clock of broker 1 3600000 ms behind the machine's"),
    ("skew_clock: {broker: 1, set_to: 2030-01-01T00:00:00Z}",
     "Set the wall clock of broker 1 to 2030-01-01T00:00:00Z"),
    ("skew_clock: {broker: 1, frozen: true}", "Stop the wall clock of broker 1"),
    ("clear_faults: 1", "End all faults inside broker 1"),
    ("expire_zk_session: 1", "Expire the ZooKeeper session of broker 1"),
    ("elect: preferred", "Elect the preferred leader"),
    ("elect: unclean", "Elect a leader, uncleanly if need be"),
    ("sync: 1", "Flush the log of broker 1 to disk"),
    ("drop_unsynced: 1", "Power loss at broker 1: unflushed data are lost"),
    ("wait_leader: none", "Wait until there is no leader"),
    ("wait_leader: {leader: 1, partition: story-0}", "Wait until broker 1 leads (story-0)"),
    ("wait_isr: [1, 2]", "Wait until the ISR is 1 and 2"),
    ("wait_hw: {1: 2, 2: 2, 0: 1}", "Wait until the high watermark is 2 on brokers 1 and 2, 1 on broker 0"),
    ("wait_leo: {1: 2}", "Wait until the log end offset is 2 on broker 1"),
    ("wait_epoch: {epoch: 3, brokers: [1]}", "Wait until the leader epoch is 3, and broker 1 knows it"),
    ("wait_checkpoint: {1: 2}", "Wait until the high watermark in the checkpoint file is 2 on broker 1"),
    ("wait_controller: {brokers: [1, 2], epoch: 2}",
     "Wait until broker 1 or 2 is the controller, with controller epoch 2"),
    ("wait_quorum: any", "Wait until a controller leads the quorum"),
    ("wait_quorum: none", "Wait until no controller leads the quorum"),
    ("wait_quorum: {leader: any, epochs_later: 2}",
     "Wait until a controller leads the quorum, 2 epochs later at least"),
    ("wait_quorum: {leader: any, changed: true, commits: false}",
     "Wait until a controller leads the quorum in another epoch, and has committed nothing in it"),
    ("name_voters: [old, one, other]", "Call the controller that leads 'old', and the others 'one' and 'other'"),
    (
        "wait_quorum: {leader: any, caught_up: 2, changed: false}",
        "Wait until a controller leads the quorum, still in the same epoch, and 2 voters have its log",
    ),
    ("add_controller: {}", "Start one more controller, and make it a voter"),
    ("add_controller: {broker: 1}", "Make broker 1 a voter"),
    ("remove_controller: controller", "Take the controller out of the voters"),
    ("lose_disk: 1", "Take all data of broker 1 away"),
    ("kill: controller", "Kill the controller (SIGKILL)"),
    ("wait_event: {broker: 1, kind: truncation, fields: {old: 2, new: 1}}",
     "Wait for the event truncation of broker 1 (old 2, new 1)"),
    ("verify: {lost: 1, diverged: 2}", "Compare all that was produced with the logs: 1 lost and 2 diverged"),
    ("verify: {found: {}, topic: story}",
     "Compare all that was produced with the logs in the topic story: nothing wrong"),
    ("start_consumer: {consumer: a, group: g}", "Start the consumer a (confluent-kafka) in group g"),
    ("start_consumer: {consumer: a, group: g, library: kafka-python, settings: {group.instance.id: one}}",
     "Start the consumer a (kafka-python) in group g as the static member one"),
    ("consume: {consumer: a, values: [m1, m2]}", "Consumer a polls and gets m1, m2"),
    ("consume: {consumer: a, values: m1, busy: true}", "Consumer a polls and gets m1, and processes for a long time"),
    ("busy: a", "Consumer a processes for a long time and does not poll"),
    ("poll: a", "Consumer a polls again"),
    ("commit: a", "Consumer a commits what it has got"),
    ("commit: {consumer: a, error: UNKNOWN_MEMBER_ID}",
     "Consumer a commits what it has got, which fails with UNKNOWN_MEMBER_ID"),
    ("commit: {consumer: a, answer: later}", "Consumer a commits what it has got; its response is awaited later"),
    ("wait_consumer_error: {consumer: a, error: UNRELEASED_INSTANCE_ID}",
     "Wait until consumer a ends its work with UNRELEASED_INSTANCE_ID"),
    ("commit: {consumer: a, offsets: {story-0: 1}, error: STALE_MEMBER_EPOCH}",
     "Consumer a commits 1 of story-0, which fails with STALE_MEMBER_EPOCH"),
    ("wait_group: {group: g, state: Stable, epochs: {a: 3, b: 3}}",
     "Wait until group g is Stable and has epochs a 3, b 3 or later"),
    ("wait_commit: a", "Wait until the commit of consumer a ends without an error"),
    ("close_consumer: a", "Close the consumer a"),
    ("kill_consumer: a", "Kill the consumer a (SIGKILL)"),
    ("wait_group: {group: g, state: Stable, members: 1, generation: 2, lag: 3, assignment: {a: [story-0], b: []}}",
     "Wait until group g is Stable and has 1 member and is in generation 2 or later and lags by at most 3 and lets a "
     "read story-0 and lets b read nothing"),
    ("wait_group: {group: g, committed: {story-0: 2}}", "Wait until group g has committed 2 of story-0"),
    ("expect_group: {group: g, state: Empty}", ""),
    ("start_producer: {producer: a, transactional_id: tx}",
     "Start the producer a (confluent-kafka) with the transactional id tx"),
    ("begin_transaction: a", "Producer a begins a transaction"),
    ("send: {producer: a, values: [m1, m2]}", "Producer a sends m1, m2"),
    ("send: {producer: a, values: m1, partition: story-0, error: INVALID_PRODUCER_EPOCH}",
     "Producer a sends m1, which fails with INVALID_PRODUCER_EPOCH (story-0)"),
    ("commit_transaction: a", "Producer a commits"),
    ("commit_transaction: {producer: a, answer: later}", "Producer a commits; the outcome is awaited later"),
    ("abort_transaction: {producer: a, error: _FENCED}", "Producer a aborts, which fails with _FENCED"),
    ("wait_producer: a", "Wait until the call of producer a ends without an error"),
    ("kill_producer: a", "Kill the producer a (SIGKILL)"),
    ("pause_client: a", "Pause the client a (SIGSTOP)"),
    ("resume_client: a", "Resume the client a (SIGCONT)"),
    ("wait_transaction: {transactional_id: tx, state: Ongoing, epoch: 2, partitions: [story-0]}",
     "Wait until transactional id tx is Ongoing and is in epoch 2 or later and lacks a marker in story-0"),
    ("wait_transaction: {transactional_id: tx, partitions: []}", "Wait until transactional id tx lacks no marker"),
    ("wait_lso: {1: 2}", "Wait until the last stable offset is 2 on broker 1"),
    ("hold_requests: {broker: 1, rpc: EndTxn, group: tx, outlives_connection: true}",
     "Hold EndTxn requests of transactional id tx at broker 1, also when their clients disconnect"),
    ("expect_transaction: {transactional_id: tx, state: Empty}", ""),
    ("expect_read: {isolation_level: read_committed, values: []}", ""),
    ("expect_producers: {starts: []}", ""),
    ("expect_hanging: {starts: [0]}", ""),
    (
        "set_group_config: {group: q, config: {share.delivery.count.limit: 3, share.isolation.level: read_committed}}",
        "For group q, set share.delivery.count.limit to 3 and share.isolation.level to read_committed",
    ),
    ("begin_share_group: {group: q, offset: 4}", "Share group q shall begin at offset 4"),
    (
        "begin_share_group: {group: q, offset: 4, error: NON_EMPTY_GROUP}",
        "Share group q shall begin at offset 4, which fails with NON_EMPTY_GROUP",
    ),
    ("start_member: {member: a, group: q}", "Member a joins share group q"),
    ("share_fetch: {member: a, values: []}", "Member a fetches and gets nothing"),
    ("share_fetch: {member: a, values: [m, n], delivery: 2}", "Member a fetches and gets m, n, which is delivery 2"),
    (
        "share_fetch: {member: a, values: [], error: GROUP_AUTHORIZATION_FAILED}",
        "Member a fetches, which fails with GROUP_AUTHORIZATION_FAILED",
    ),
    ("acknowledge: {member: a, values: m, type: release}", "Member a releases m"),
    ("acknowledge: {member: a, values: m, answer: later}", "Member a accepts m; the response is awaited later"),
    ("wait_acknowledge: a", "Wait until the acknowledgement of member a ends without an error"),
    ("leave_share_group: a", "Member a ends its session and leaves"),
    ("kill_member: a", "Member a dies: its connection closes"),
    (
        "wait_share: {group: q, end: 4, records: {0-3: acquired x1 by a}, durable: {}, durable_leader_epoch: 2}",
        "Wait until share group q ends at 4, has 0-3: acquired x1 by a in flight, no records on disk, was read in "
        "leader epoch 2",
    ),
    ("expect_share: {group: q, start: 4}", ""),
    ("verify_shares: {}", "Judge all that members were given and have said: no guarantee is broken"),
    ("verify_shares: {accepted-again: 1}", "Judge all that members were given and have said: 1 accepted-again"),
    ("abort_hanging: {start: 3}", "Write an ABORT marker for the transaction that begins at offset 3"),
    ("send_offsets: {producer: a, group: g, offsets: {story-0: 2}, answer: later}",
     "Producer a adds offsets of group g to its transaction: 2 of story-0; the outcome is awaited later"),
    ("expect: {epoch: 0}", ""),
    ("mark: here", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), CASES, ids=[text for text, _ in CASES])
def test_a_step_is_a_sentence(text: str, sentence: str) -> None:
    (step,) = parse(HEAD + text + "\n", "a.yaml").steps
    assert narrated(step) == sentence


def test_every_verb_has_a_sentence_or_is_silent_on_purpose() -> None:
    reported = {re.split(r"\W", text)[0] for text, _ in CASES}
    assert reported >= set(steps.STEPS) - {"wait_answer", "table"}
    silent = {text.partition(":")[0] for text, sentence in CASES if not sentence}
    expectations = {"group", "transaction", "read", "producers", "hanging", "share"}
    assert silent == {"expect", "mark", *(f"expect_{name}" for name in expectations)}


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_stories_say_what_happens_and_why(name: str) -> None:
    """A class sees sentences and states; the file's own language is behind ``--verbose``."""
    story = load(name)
    lines = [narrated(step) for step in story.steps]
    shown = [narrated(step) for step in story.steps if not isinstance(step, fault_steps.FaultStep)]
    assert max(map(len, shown)) <= 110
    assert max(map(len, lines)) <= 160, "a fault's sentence has all of its parameters"
    assert not any("=" in line.replace("acks=", "") for line in lines)
    acted = [
        step for step in story.steps if isinstance(step, broker_steps.Kill | fault_steps.FaultStep | broker_steps.Elect)
    ]
    assert sum(bool(step.note) for step in story.steps) >= max(3, len(acted) // 2)


@pytest.mark.parametrize("name", shipped_names())
def test_what_a_scenario_teaches_fits_into_80_columns_and_no_word_is_lost(name: str) -> None:
    story = load(name)
    lines = introduction(story)
    prose = lines[: lines.index(f"  {settings_lines(story)[0]}")]
    assert max(map(len, prose)) <= 80
    assert " ".join(prose).split() == f"{name}: {story.title} {story.teaches} Rule: {story.rule}".split()


def test_a_list_or_a_table_in_what_a_scenario_teaches_stays_as_it_is() -> None:
    teaches = "One line\nof prose.\n\n- a list\n- of two"
    story = replace(load("zombie-leader"), title="t", teaches=teaches, rule="")
    assert introduction(story)[:7] == [
        "zombie-leader: t",
        "",
        "  One line of prose.",
        "",
        "  - a list",
        "  - of two",
        "",
    ]


def test_the_introduction_says_how_a_state_is_read() -> None:
    reported = introduction(load("walkthrough-two-replicas"))
    assert " ".join(reported).split()[-len(" ".join(LEGEND).split()) :] == " ".join(LEGEND).split()
    assert max(map(len, reported)) <= 80
    assert "`1: 2/1*  2: -`" in " ".join(LEGEND)
