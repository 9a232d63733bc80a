"""Pure: which guarantee of transactions a history breaks, after the list of Jepsen's checker for Kafka."""
