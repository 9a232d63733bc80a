"""The coordinator of consumer groups, pure: one shard for each led partition of __consumer_offsets."""
