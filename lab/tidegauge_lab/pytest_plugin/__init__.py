"""The pytest plugin (row B9): a cluster in seconds as a fixture, awaitable state instead of sleeps, faults."""
