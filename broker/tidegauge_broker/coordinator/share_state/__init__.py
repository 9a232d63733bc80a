"""The share coordinator: the durable states of share partitions, on __share_group_state (KIP-932)."""
