"""THE CORE: replication of partitions, pure. This page is its contract: read it before you drive the core or change it.

``BrokerCore`` (broker.py) is one state machine for all replicas of one broker. It takes one event, changes its state,
and returns effects, which its driver carries out. It reads no clock, no disk and no network, starts no thread, and
draws no random number, so that the broker process, the simulator, the explorer and the unit tests run the same code.

A step
    A driver makes every step in this order, and makes one step at a time::

        effects = core.produce(request, token, now_ms)      # 1. the core decides: its state has changed already
        executor.execute(effects)                           # 2. effects are carried out in their order
                                                            # 3. only now comes the next event

    There is no await and no other event between 1 and 2. ``EffectExecutor`` (effect_executor.py) does 2 over two ports,
    ``ReplicaLogs`` and ``Host``; a driver implements those ports and not the effects. An event that arrives while
    effects are carried out waits until they are done (rule 7 there).

Events
    Each is a method of ``BrokerCore``, and each belongs to one caller:

    ==============================  ====================================================================================
    caller                          events
    ==============================  ====================================================================================
    clients' and followers'         ``produce``, ``delete_records``, ``fetch``, ``cancel``, ``wake_fetches``;
    requests                        ``preparations`` and ``begin_verification`` before a produce
    the controller                  ``take_over``, ``stop``, ``configure_topic``, ``isr_verdict``, ``set_broker_epoch``;
                                    in ZooKeeper mode through ``ControlRequests``, which fences requests first
    this broker's fetchers          ``next_round``, then one of ``fetch_response_received``, ``epoch_ends_received`` and
                                    ``round_failed`` for each round
    the executor                    ``log_truncated``, ``log_dir_failed``
    the log manager                 ``log_start_advanced``; ``log_dir_failed`` by way of ``EffectExecutor.fail``
    the timer                       ``tick``, no later than ``next_deadline_ms``
    ==============================  ====================================================================================

    ``logs_needed`` comes before ``take_over``: the driver opens or creates those logs, off the event loop if it likes,
    and hands them in as ``LoadedLog``, or the error for which there is none. All other methods only report.

Effects
    effects.py lists them. Within a step the order is: persist, then notify. The log effects of a partition come before
    the responses, proposals and events about it (I8). Between partitions the order means nothing.

    ======================================  ============================================================================
    effect                                  what the driver owes
    ======================================  ============================================================================
    AppendAsLeader, AppendAsFollower        the bytes are in the log, readable, when the next effect is carried out;
                                            no fsync, as in Kafka
    WriteEpochs                             with ``sync`` the file is on disk before the records of that epoch can be
    TruncateLog, TruncateFully              then ``log_truncated`` with the producer state of the remaining log
    AdvanceLogStart, DeleteLog              files may go later
    RespondToProduce, RespondToFetch,       exactly one for each token, at once or later, unless the caller has
    RespondToDeleteRecords                  cancelled; a fetch is read from the log when it is responded to
    ProposeIsr                              the controller's verdict goes to ``isr_verdict``, with the same object
    FetchersChanged                         ``next_round`` for each of the leaders
    LeadershipChanged                       once for each leadership gained or lost, before the control response; of
                                            coordinators' topics, and of partitions that ``watch_leadership`` names
    Note, LogLine                           reports; nothing depends on them
    FailReplica                             the replica goes offline, as if its log had failed
    ======================================  ============================================================================

Persistence
    Records: when the page cache is written out, or by ``flush.*``. Leader epochs: before their first record. The high
    watermark (``high_watermarks``) and the log start offset: by checkpoint, from time to time; at the start they are
    clamped to the log. The producer state: with each new segment and at a clean stop; else it is replayed. Roles, ISR,
    followers' offsets and parked operations: never; the controller's next state brings a role back.

Threads and time
    One thread runs the core and its executor: the event loop. ``preparation.prepare`` is pure and may run elsewhere.
    ``now_ms`` is in ms, of one clock that never goes back. ``WallTime`` derives the wall-clock time from it, with which
    records are stamped and compared. A time that is stored never decides who leads or which records are committed.

Failures
    Bad input from a client, follower, leader or controller is an error of the table (``tidegauge.errors``) and changes
    nothing. An assertion that fails is a defect: it costs the one replica that the decision was about (``contain``,
    ``FailReplica``), or, in what all replicas share, the process. No request, record or file reaches an assertion.

Invariants
    ====  ========================================================  ====================================================
    no.   holds after every step                                    asserted in
    ====  ========================================================  ====================================================
    I1    0 <= log start offset <= high watermark <= log end        ``Partition.set_high_watermark``, ``move_log_end``
          offset                                                    and ``_check_offsets``; used in ``Reader.read``; the
                                                                    log's own in ``PartitionLog._check_offsets``
    I2    A leader's high watermark never falls                     ``Partition.set_high_watermark``
    I3    In the epoch cache epochs and start offsets rise          ``EpochCache._append`` and ``truncate_from_start``
          strictly
    I4    A leader is in its own committed ISR, which is part of    ``Leader.begin_epoch``, ``_proposal``, ``_set_isr``;
          the maximal ISR                                           ``PendingExpand``, ``PendingShrink``
    I5    Leader epoch and partition epoch never fall               ``Partition.adopt``, ``Leaderships.check``
    I6    A leader appends under its own epoch, at its log end      ``Leader.append``;
          offset                                                    ``PartitionLog.append_as_leader``
    I7    A follower appends only at its log end offset, or above   ``Follower.ask``, ``ask_epoch``; ``Rounds.next``;
          it where compaction left a gap, and only from the         ``StandingRounds.next`` and ``take_back``;
          response to its request in flight                         ``PartitionLog._append``
    I8    Nothing is sent or reported before the log effects of     the brokers in memory of the simulator and the tests
          the same step
    ====  ========================================================  ====================================================

    The simulation checks them after every event (docs/simulation.md). Roles obey the table of roles.py, by
    ``Partition.enter``.

Map
    entry       broker, control_requests; messages (requests, results), effects, ports (the core's inputs)
    driver      effect_executor
    replicas    hosted, partition, roles, partition_states (roles of replicas), leaderships, view, refusals
    leader      leader, isr, isr_changes, remote_replica; writes, preparation, validation, record_errors,
                producer_state, open_transactions, verification; fetches, reading, standing_fetch, preferred_replica,
                list_offsets
    follower    following, rounds, standing_rounds, follower, rules/ (where two logs part), epoch_cache
    waiting     parked, delayed_produce, delayed_fetch, delayed_delete_records, delayed_offsets
    beside      quota, future_replica and future_states (moves between log directories), snapshot (for the explorer)

Source: Kafka's ReplicaManager and Partition; the form follows etcd's package raft.
"""
