"""Read what the accountant judges: topics, replicas and their files."""
