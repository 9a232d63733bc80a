"""The pytest plugin: a cluster in seconds as a fixture, awaitable state instead of sleeps, faults."""
