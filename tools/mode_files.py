"""Each file of integration tests by the modes in which it runs: docs/which-mode.md, test_both_modes, conftest.py.

A test holds that every file is in one of these tables.
"""

from __future__ import annotations

QUICK = {
    "test_kafka_admin": "Kafka's AdminClient: topics, settings, elections, log directories, producers",
    "test_kafka_transactions": "transactions of Kafka clients through killed coordinators",
    "test_lab_holds": "followers that are held and stepped",
    "test_watch_timeline": "the page's timeline, and recordings",
}
"""Files of tests that run in both modes in each run of the tests, with their subject."""
FILES = {
    "test_authentication_faults": "logins that are refused on purpose",
    "test_broker_exactly_once": "a leader that dies between append and response",
    "test_broker_failover": "failover with acks=all, and return",
    "test_broker_hostile": "malformed and large requests at gRPC listeners",
    "test_broker_partial_failure": "a step that fails for one partition",
    "test_broker_requests": "requests over gRPC",
    "test_broker_settings": "settings that change while brokers run",
    "test_broker_slow_readers": "consumers that do not read what they have asked for",
    "test_broker_storage": "damaged and failed log directories",
    "test_broker_tls": "TLS on gRPC listeners",
    "test_broker_truncation_rules": "the four truncation rules",
    "test_chaos_kafka": "coordinators that die under Kafka clients' copiers and members",
    "test_chaos_matrix": "each fault under each workload of producers",
    "test_chaos_restore": "snapshots and restores amid faults",
    "test_chaos_soak": "random faults under producers, consumers and Kafka clients",
    "test_client_console": "verbs in a terminal",
    "test_client_delivery": "delivery by Tidegauge's own client",
    "test_control_http": "control over HTTP",
    "test_damaged_coordinator_log": "a coordinator's log that can't be read",
    "test_demo": "the demo, with Spark",
    "test_ended_sessions": "a membership that the lab ends at once, by each verb",
    "test_events": "events, `explain` and `timeline`",
    "test_groups": "groups of the classic protocol through dead coordinators",
    "test_instruments": "sentences of `status`, `explain` and `verify` about dead processes and full disks",
    "test_internal_topics_again": "internal topics that are deleted and created again",
    "test_interrupted_restore": "a restore that is killed",
    "test_kafka_clients": "librdkafka, kafka-python, aiokafka and kcat",
    "test_kafka_faults": "faults that Kafka clients meet",
    "test_kafka_follower_fetch": "consumers that read from followers",
    "test_kafka_hostile": "malformed requests of Kafka's protocol",
    "test_kafka_log_dirs": "replicas that move between log directories",
    "test_kafka_record_errors": "batches that are refused record by record",
    "test_kafka_tools": "Kafka's own tools",
    "test_killed_commands": "commands that are killed, and their clusters",
    "test_lab_faults": "faults inside brokers",
    "test_lab_verbs": "the lab's verbs",
    "test_leaderless_coordinators": "coordinators whose partitions have no leader",
    "test_odd_groups": "groups with odd members and odd records",
    "test_read_committed": "read_committed through failovers",
    "test_reassignment": "reassignments",
    "test_replaced_coordinator": "coordinators that another one has replaced",
    "test_spark_job": "the Spark job, exactly once through killed leaders",
    "test_verify": "`verify`, with histories",
    "test_verify_healthy": "`verify` of healthy clusters",
    "test_watch": "the page, its buttons and its events",
    "test_watch_in_chinese": "the page in Chinese",
    "test_watch_lessons": "labs and scenarios on the page",
}
"""Those that run in both modes in `make test-long`."""
LONG = {
    "test_examples": "the examples in five languages",
    "test_foreign_checker": "histories for another checker",
    "test_groups_history": "what a group shows of its rebalances",
    "test_grpc_sasl": "SASL on gRPC listeners",
    "test_inter_broker_kafka": "brokers that speak Kafka's protocol among themselves",
    "test_kafka_certificates": "principals by certificate",
    "test_kafka_credentials": "SCRAM credentials by Kafka's tools",
    "test_kafka_large_requests": "large requests of Kafka's protocol",
    "test_kafka_quotas": "client quotas",
    "test_kafka_security": "SASL, TLS and access control lists, with Kafka clients",
    "test_secrets": "secrets that are shown nowhere",
    "test_transaction_instruments": "looking into transactions",
    "test_transaction_matrix": "transactional clients in pairs, through faults",
    "test_transaction_tools": "Kafka's tools for transactions",
    "test_verify_transactions": "`verify --transactions`",
}
"""Files whose tests are all or mostly long; they run in both modes in `make test-long`, with their long tests."""
ZOOKEEPER_ALONE = {
    "test_advertised_listeners": (
        "a broker in KRaft mode registers its addresses at its start alone, as in Kafka 4; the file's last "
        "test shows that"
    ),
    "test_apache_kafka_controller": (
        "its controller is Apache Kafka 3.9's, in ZooKeeper; `test_mixed_quorum` has Apache Kafka's "
        "controllers of KRaft mode"
    ),
    "test_broker_start": (
        "it starts single brokers on a ZooKeeper; `test_quorum` and `test_kraft_brokers` start single nodes "
        "of KRaft mode"
    ),
    "test_brokers_over_kafka": "in KRaft mode brokers speak Kafka's protocol to one another, so that all files try it",
    "test_brokers_sasl": (
        "it writes the brokers' SCRAM credentials into ZooKeeper before they start; `test_kraft_security` and "
        "`test_quorum_secured` have KRaft mode's"
    ),
    "test_compacted_topics": "Kafka 4 has no segments below 1 MiB (KIP-1030), and it needs many of them",
    "test_consumer_groups": (
        "it is about the extension `tidegauge.zookeeper.group.protocols`; `test_consumer_groups_clients` has KRaft mode"
    ),
    "test_controller_elections": "the controller is a broker",
    "test_controller_hostile_znodes": "there are no znodes",
    "test_controller_races": "it is about writes to znodes that compete",
    "test_controller_racks": "it reads the assignment from znodes; `tests/unit/metadata` has KRaft mode's placement",
    "test_controller_sessions": "it is about ZooKeeper sessions",
    "test_controller_stop_and_return": "it is about the requests of a controller that is a broker",
    "test_controller_topics": "it reads topics from znodes",
    "test_controller_verbs": "`zk-tree` and the controller's znodes; `test_kraft_cluster` has the verbs of a quorum",
    "test_controller_znodes": "there are no znodes",
    "test_groups_compaction": "Kafka 4 has no segments below 1 MiB (KIP-1030), and it needs many of them",
    "test_ipv6_listeners": "it starts single brokers on a ZooKeeper",
    "test_kafka_connection_limits": "in KRaft mode clients share the brokers' own listener, which takes slots first",
    "test_kafka_data_served": "Apache Kafka 3.9 writes the data in ZooKeeper mode; `test_apache_kafka_data` has 4.3",
    "test_kafka_files_served": (
        "it puts the znodes of a cluster of Apache Kafka 3.9 in place; `test_offset_records` and "
        "`test_metadata_log_kafka` read 4.3's files"
    ),
    "test_kafka_quotas_beside_kafka": "Apache Kafka 3.9 beside it is in ZooKeeper mode",
    "test_kafka_record_errors_beside_kafka": "Apache Kafka 3.9 beside it is in ZooKeeper mode",
    "test_kafka_wire_responses": (
        "its responses equal Apache Kafka 3.9's in ZooKeeper mode; `test_differential` compares with 4.3"
    ),
    "test_lab_cluster": (
        "it is about a cluster's ZooKeeper, processes and ports; `test_kraft_cluster` is its counterpart"
    ),
    "test_missed_leader_epoch": "it writes a znode while a broker is away",
    "test_mixed_clusters": "Apache Kafka 3.9 in the same cluster is in ZooKeeper mode; `test_mixed_kraft` has 4.3",
    "test_mixed_reassignment": "Apache Kafka 3.9 in the same cluster is in ZooKeeper mode; `test_mixed_kraft` has 4.3",
    "test_mixed_replication": "Apache Kafka 3.9 in the same cluster is in ZooKeeper mode; `test_mixed_kraft` has 4.3",
    "test_mixed_transactions": "Apache Kafka 3.9 in the same cluster is in ZooKeeper mode; `test_mixed_kraft` has 4.3",
    "test_old_java_clients": "Kafka 4 has no requests of 0.10 (KIP-896)",
    "test_old_metadata": "a broker without its controllers is fenced, so that it is no member with old metadata",
    "test_packaged_java": "it is about ZooKeeper's Java, of which KRaft mode has none",
    "test_pytest_plugin": "it is given a ZooKeeper; `test_kraft_projects` has the fixture in KRaft mode",
    "test_pytest_plugin_ends": "it is given a ZooKeeper; `test_kraft_projects` has the fixture in KRaft mode",
    "test_pytest_plugin_leftovers": "it is given a ZooKeeper; `test_kraft_projects` has the fixture in KRaft mode",
    "test_spark_long": "it is given a ZooKeeper; `test_spark_job` runs in both modes",
    "test_spark_old_metadata": "a broker without its controllers is fenced, so that it is no member with old metadata",
    "test_topic_ids_of_sessions": "it removes a topic's id from its znode",
    "test_verbs_beside_kafka": "Apache Kafka 3.9 in the same cluster is in ZooKeeper mode",
    "test_zookeeper_client": "it is about the client of ZooKeeper",
}
"""Files of ZooKeeper mode alone, and why. In KRaft mode (``TIDEGAUGE_TEST_MODE``) they are skipped."""
KRAFT_ALONE = frozenset(
    {
        "test_compose_kraft",
        "test_consumer_groups_clients",
        "test_consumer_protocol_clients",
        "test_controllers_side_by_side",
        "test_format_kafka",
        "test_kraft_brokers",
        "test_kraft_cluster",
        "test_kraft_combined",
        "test_kraft_mode",
        "test_kraft_projects",
        "test_kraft_security",
        "test_metadata_log_kafka",
        "test_metadata_log_tools",
        "test_mixed_kraft",
        "test_mixed_quorum",
        "test_offset_records",
        "test_quorum",
        "test_quorum_secured",
        "test_rolling_swap",
        "test_chaos_shares",
        "test_share_fetch",
        "test_share_groups",
        "test_share_instruments",
        "test_transactions_v2",
        "test_verify_shares",
        "test_watch_quorum",
    }
)
"""Files about what only KRaft mode has."""
BY_THEMSELVES = frozenset(
    {
        "test_action",
        "test_apache_kafka_data",
        "test_as_kafka",
        "test_as_on_macos",
        "test_both_modes",
        "test_differential",
        "test_kafka_applications",
        "test_kafka_connect",
        "test_kafka_debezium",
        "test_kafka_programs",
        "test_operators",
        "test_scenarios",
    }
)
"""Files that start clusters of both modes, or of the mode that each of their tests names."""
WITHOUT_A_MODE = frozenset(
    {
        "test_bench",
        "test_broker_listeners",
        "test_compiled_brokers",
        "test_docs_clients",
        "test_docs_guide",
        "test_docs_package",
        "test_docs_readme",
        "test_docs_site",
        "test_example_project",
        "test_kafka_spark",
        "test_lab_launcher",
        "test_labs",
        "test_loaded_decision",
        "test_log_files_kafka",
        "test_log_kill",
        "test_play",
        "test_simulated_stories",
        "test_spark_session",
        "test_spark_submit",
        "test_spark_transport",
        "test_translation_in_javascript",
    }
)
"""Files that start no cluster, or one to which a mode makes no difference: pages, packages, files, Spark alone."""
