"""A decision that a transaction coordinator has loaded and the next one lacks leaves its transaction whole.

Broker 1 coordinates, and appends the decision; broker 2 alone fetches it, so that it is not committed. Broker 1 dies,
and 2 loads its log to the end. Kafka's coordinator sends the markers now: story-0 has the commit's when 2 dies,
story-1 has none yet. Broker 3, which never had the decision, aborts the open transaction for the next producer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge_lab.scenario import load, play

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

STORY = """
title: A decision that was loaded and is lost.
teaches: No marker is sent for a decision that was loaded before it is known to be committed.
rule: A decision counts when its record is committed.
limit_seconds: 240
cluster: {brokers: 5, controller: 0}
topics:
  - {name: story, assignment: [[0], [4]]}
  - {name: __transaction_state, assignment: [1, 2, 3], config: {cleanup.policy: compact, min.insync.replicas: 2}}
steps:
  - start_producer: {producer: first, transactional_id: copier, library: tidegauge}
  - begin_transaction: first
  - send: {producer: first, values: a0, partition: story-0}
  - send: {producer: first, values: a1, partition: story-1}
  - wait_hw: {hw: {1: 3, 2: 3, 3: 3}, partition: __transaction_state-0}
  - hold_fetch: {brokers: [2, 3], partition: __transaction_state-0}
  - hold_requests: {broker: 4, rpc: WriteTxnMarkers}
  - commit_transaction: {producer: first, answer: later}
  - wait_leo: {leo: {1: 4, 2: 3, 3: 3}, partition: __transaction_state-0}
  - step_fetch: {broker: 2, partition: __transaction_state-0}
  - expect: {leo: {1: 4, 2: 4, 3: 3}, hw: {1: 3}, partition: __transaction_state-0}
  - kill_producer: first
  - kill: 1
  - expire_zk_session: 1
  - wait_leader: {leader: 2, partition: __transaction_state-0}
  - wait_leo: {leo: {2: 5, 3: 3}, partition: __transaction_state-0}
    note: the next coordinator has loaded the decision, and has written it again
  - expect: {hw: {2: 3}, isr: [2, 3], partition: __transaction_state-0}
  - expect_transaction: {transactional_id: copier, state: PrepareCommit, partitions: [story-0, story-1]}
  - kill: 2
  - expire_zk_session: 2
  - wait_leader: {leader: 3, partition: __transaction_state-0}
  - hold_fetch: {brokers: [3], release: true, partition: __transaction_state-0}
  - start: 1
  - wait_isr: {isr: [1, 3], partition: __transaction_state-0}
  - release_requests: 4
  - start_producer: {producer: second, transactional_id: copier, library: tidegauge}
    note: it aborts what is open
  - expect_read: {isolation_level: read_committed, values: [], partition: story-0}
  - expect_read: {isolation_level: read_committed, values: [], partition: story-1}
  - begin_transaction: second
  - send: {producer: second, values: b0, partition: story-0}
  - send: {producer: second, values: b1, partition: story-1}
  - commit_transaction: second
  - wait_transaction: {transactional_id: copier, state: CompleteCommit, partitions: []}
  - expect_read: {isolation_level: read_committed, values: [b0], partition: story-0}
  - expect_read: {isolation_level: read_committed, values: [b1], partition: story-1}
"""


def test_a_decision_that_was_loaded_and_lost_leaves_its_transaction_whole(tmp_path: Path) -> None:
    file = tmp_path / "loaded-and-lost.yaml"
    file.write_text(STORY, encoding="utf-8")
    outcome = play(load(str(file)), tmp_path / "run")
    assert outcome.passed, outcome.failure
