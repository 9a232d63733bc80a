"""Why nodes of Apache Kafka log lines at WARN and above when nodes end, pause, return and lead no more.

Each cause is one of Kafka's own. Most show among nodes of Kafka alone (``test_each_kind_in_each_role[kafka-kafka]``);
the others are of a node that is not there, or of a race within one broker of Kafka's.
"""

from __future__ import annotations

from tests.integration.kafka_complaints import Cause

_ENDS = frozenset({"start", "kill", "stop", "swap", "unclean", "eligible"})
"""Acts in which nodes are not there."""
_LOST = _ENDS | {"pause"}
"""Acts in which nodes can't be reached."""
_LEADERS = _LOST | {"elect", "move"}
"""Acts in which partitions get other leaders."""
_UNREACHABLE = (
    r"(failed|was disconnected before the response was read)|SocketTimeoutException: Failed to connect within"
)
CAUSES = (
    # Connections
    Cause(
        "A node is not there.",
        "NetworkClient",
        r"Connection to node -?\d+ \(.*:(?P<port>\d+)\) could not be established\. Node may not be available\.",
        _LOST,
    ),
    Cause(
        "The leader of which a replica fetches is not there.",
        "ReplicaFetcherThread",
        rf"leaderId=(?P<node>\d+).* Error in response for fetch request .*java\.\S*: .*({_UNREACHABLE})",
        _LOST,
    ),
    Cause(
        "A broker that was paused finds its connections closed, whose requests had timed out.",
        "ReplicaFetcherThread",
        r"Error in response for fetch request .*IOException: Connection to \d+ was disconnected before the response",
        frozenset({"pause"}),
        of_itself=True,
    ),
    Cause(
        "The leader that verifies a transaction is not there.",
        "AddPartitionsToTxnManager",
        r"AddPartitionsToTxnRequest failed for node (?P<node>\d+) with a network exception\.",
        _LOST,
    ),
    Cause(
        "A broker that was paused finds such a request timed out.",
        "AddPartitionsToTxnManager",
        r"AddPartitionsToTxnRequest failed for node \d+ with a network exception\.",
        frozenset({"pause"}),
        of_itself=True,
    ),
    Cause(
        "A node that stops closes a client twice.",
        "NetworkClient",
        r"name=registration\] Attempting to close NetworkClient that has already been closed\.",
        frozenset({"stop", "swap"}),
        of_itself=True,
    ),
    # Leaders of partitions that change
    Cause(
        "The leader has its new epoch before the follower has.",
        "ReplicaFetcherThread",
        r"Partition \S+-\d+ marked as failed",
        _LEADERS,
        before=r"has an older epoch \(\d+\) than the current leader\. Will await the new LeaderAndIsr state",
    ),
    Cause(
        "A follower knows a new topic before its leader does.",
        "ReplicaFetcherThread",
        r"Received UNKNOWN_TOPIC_ID from the leader for partition (?P<topic>\S+)-\d+\. .* returned transiently",
        frozenset({"create"}),
    ),
    Cause(
        "A broker gets a new replica of a topic that it knows.",
        "logger",
        r"Expected partition (?P<topic>\S+)-\d+ with topic id \S+ to exist, but it was missing\. Creating\.\.\.",
        frozenset({"move"}),
    ),
    Cause(
        "A follower has records that the leader, which was elected uncleanly, has not.",
        "UnifiedLog",
        r"Truncating (?P<topic>\S+)-\d+ to offset \d+ below high watermark \d+",
        frozenset({"unclean"}),
    ),
    Cause(
        "The high watermark that a follower had from its former leader is beyond that which it gets from the next one.",
        "UnifiedLog",
        r"Non-monotonic update of high watermark",
        _LEADERS,
    ),
    Cause(
        "Two brokers have the same internal topic created, which is first used.",
        "DefaultAutoTopicCreationManager",
        r"Auto topic creation failed for (?P<topic>__\w+) with error 'TOPIC_ALREADY_EXISTS'",
        frozenset({"create"}),
    ),
    Cause(
        "A record was appended after retention had read the clock (``UnifiedLog.deleteRetentionMsBreachedSegments``).",
        "LogFutureTimestampLogger",
        r"largestRecordTimestamp=(?P<written_ms>\d+)\) contains future timestamp\(s\)",
        _LEADERS | {"create", "upgrade"},
    ),
    # Coordinators that change
    Cause(
        "The coordinator of a group that is empty has moved.",
        "GroupMetadataManager",
        r"Failed to write empty metadata for group \S+: This is not the correct coordinator\.",
        _LEADERS,
    ),
    Cause(
        "A broker that was paused handles a follower's fetch before it learns that it leads no more.",
        "Partition",
        r"The replica state of replica ID:\[\d+\] doesn't exist in the leader node\.",
        frozenset({"pause"}),
        of_itself=True,
    ),
    Cause(
        "The last fetch of a replica that was moved away comes after the leader has dropped it.",
        "Partition",
        r"\[Partition (?P<topic>\S+)-\d+ broker=\d+\] The replica state of replica ID:\[\d+\] doesn't exist in the",
        frozenset({"move"}),
    ),
    Cause(
        "A transaction has timed out, and its coordinator moves.",
        "TransactionCoordinator",
        r"(failed to write an epoch fence transition for producer \S+ to the transaction log with error|Rollback of "
        r"ongoing transaction for transactionalId \S+ failed due to error) NOT_COORDINATOR",
        _LEADERS,
    ),
    Cause(
        "The active controller is paused: a broker looks for the next one at controllers that it draws at random, and "
        "each that it draws the paused one costs it 2 s (``controller.quorum.request.timeout.ms``). Some are fenced.",
        "ReplicaManager",
        r"Error processing append operation on partition \S+ .*NotEnoughReplicasException: The size of the current ISR",
        frozenset({"pause"}),
        of_a_controller=True,
    ),
    Cause(
        "A client commits a transaction that has been aborted by its timeout, as a node was away for that long.",
        "TransactionCoordinator",
        r"TransactionalId: \S+'s state is COMPLETE_ABORT, but received transaction marker result to send: COMMIT",
        _LOST,
    ),
    Cause(
        "A broker that was paused lets members' sessions expire before it learns that it coordinates them no more.",
        "CoordinatorTimerImpl",
        r"The write event Timeout\(key=\S+ for the timer \S+ failed due to .*NotLeaderOrFollowerException",
        frozenset({"pause"}),
        of_itself=True,
    ),
    Cause(
        "A coordinator's partition moves away while it is loaded.",
        "CoordinatorRuntime",
        r"Failed to load metadata from \S+ with epoch \d+ due to Stopped loading records from \S+ because the "
        r"partition is not online or is no longer the leader\.",
        _LEADERS,
    ),
    Cause(
        "The leader of a share partition is replaced while it reads the state; its successor has read it.",
        "ShareCoordinatorShard",
        r"Read request leader epoch is smaller than last recorded current: \d+, requested: \d+\.",
        _LEADERS,
    ),
    Cause(
        "Likewise.",
        "PersisterStateManager$ReadStateHandler",
        r"Unable to perform read state RPC .* The leader epoch in the request is older than the epoch on the broker\.",
        _LEADERS,
    ),
    Cause(
        "Likewise.",
        "SharePartition",
        r"Failed to initialize the share partition: .*errorCode=74,errorMessage=Error in read state RPC\. The leader",
        _LEADERS,
    ),
    Cause(
        "The leader of a share partition was replaced; its successor has written to the share coordinator.",
        "ShareCoordinatorShard",
        r"Write request leader epoch is smaller than last recorded current: \d+, requested: \d+\.",
        _LEADERS,
    ),
    Cause(
        "Likewise.",
        "PersisterStateManager$WriteStateHandler",
        r"Unable to perform write state RPC .* The leader epoch in the request is older than the epoch on the broker\.",
        _LEADERS,
    ),
    Cause(
        "Likewise.",
        "SharePartition",
        r"Failed to write the share group state .*NotLeaderOrFollowerException: Error in write state RPC\. The leader "
        r"epoch in the request is older",
        _LEADERS,
    ),
    Cause(
        "A member of a share group is sent to another leader, at which it has no session.",
        "SharePartitionManager",
        r"Share session error for ShareSessionKey.*: no such share session found",
        _LEADERS,
    ),
    Cause(
        "A member of a share group disconnects from a broker that no longer leads.",
        "SharePartitionManager",
        r"No share partition found for groupId \S+ topicPartition \S+ while releasing acquired topic partitions",
        _LEADERS,
    ),
    Cause(
        "Of several batches in flight the first was refused by the former leader, and a later one was the first to "
        "reach the next; the producer sends all of them again.",
        "ReplicaManager",
        r"Error processing append operation .*OutOfOrderSequenceException: Out of order sequence number for producer "
        r"\d+ .*\(incoming seq\. number\), \d+ \(current end sequence number\)",
        _LEADERS,
    ),
    Cause(
        "The first batch of a transaction came while the former one was still ending (CONCURRENT_TRANSACTIONS), so "
        "those behind it are out of order; the producer sends all of them again (KIP-890).",
        "ReplicaManager",
        r"Error processing append operation .*OutOfOrderSequenceException: .* Expected sequence 0 for transactions v2",
        frozenset(),
    ),
    # Controllers
    Cause(
        "A level of metadata is raised, as it was asked.",
        "FeatureControlManager",
        r"Upgrading metadata\.version from \S+ to \S+\.",
        frozenset({"upgrade"}),
    ),
    Cause(
        "A controller becomes active.",
        "QuorumController",
        r"Performing controller activation\.",
        _LOST,
        of_a_controller=True,
    ),
    Cause(
        "A controller that was paused, or stops, learns of its successor.",
        "QuorumController",
        r"Renouncing the leadership due to a metadata log event\.",
        frozenset({"pause", "stop", "swap"}),
        of_itself=True,
    ),
    Cause(
        "A broker's or controller's request reaches a controller that is not active yet, or any more.",
        "ControllerApis",
        r"RequestHeader\(apiKey=(BROKER_HEARTBEAT|CONTROLLER_REGISTRATION),.*NotController",
        _LOST,
        of_a_controller=True,
    ),
    Cause(
        "A broker assigns directories so rarely that its channel still has the former active controller.",
        "ControllerApis",
        r"RequestHeader\(apiKey=ASSIGN_REPLICAS_TO_DIRS,.*NotController",
        frozenset(),
    ),
    Cause(
        "A controller registers while the active one changes.",
        "ControllerRegistrationManager",
        r"RegistrationResponseHandler: channel manager timed out before sending the request\.",
        _LOST,
        of_a_controller=True,
    ),
    Cause(
        "The machine is busy, or the controller was paused.",
        "EventPerformanceMonitor",
        r"Exceptionally slow controller event .* took \d+ ms\.",
        frozenset(),
    ),
    Cause(
        "These tests look for the active controller at one that has not loaded its metadata yet.",
        "ControllerApis",
        r"apiKey=DESCRIBE_CLUSTER,.* clientId=tidegauge-quorum-admin.*UnsupportedVersionException: Direct-to-contr",
        _LOST,
        of_a_controller=True,
    ),
)
"""All that is expected."""
