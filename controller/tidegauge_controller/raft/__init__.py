"""Raft as Kafka's controllers run it, pure: one node of a quorum over one log that is replicated by fetches.

Contract
    ``RaftNode(config, log, history, election)`` begins with what the disk has. ``step(event, now_ms, random)`` takes
    the timers that are due, then one event of ``events``. It returns ``effects``, to be carried out in order.
    ``next_deadline_ms()`` says when to call ``step(Tick(), ...)`` at the latest.

Access
    One driver owns a node: the shell of a process, or a simulator. ``node.step`` is the only way in; ``core`` is shared
    by ``elections``, ``leading``, ``following`` and ``membership`` alone.

The disk
    ``PersistElection`` and ``InstallSnapshot`` block the node: ``is_blocked`` is true, and the next event must be
    ``ElectionPersisted``, ``SnapshotInstalled`` or ``SnapshotRefused``. A message that needed a durable transition
    first is handled again after it. ``Flush`` does not block; ``Flushed`` may come at any time later. A leader counts
    its own records, and a follower fetches on, only after that.

The layers
    values, messages, events, effects, config     plain values
    log_view, voter_history, states, connections  what a node keeps
    core                                           transitions, and what the parts share
    elections, leading, following, membership      the rules, one room each; describing, refusals
    node                                           dispatch

Sources: KIP-595, KIP-630 (snapshots), KIP-853 (voters), KIP-996 (pre-vote), KIP-1166 (high watermark in fetches);
``org.apache.kafka.raft.KafkaRaftClient`` of Kafka 4.3.
"""
