"""Run the core's replicas: effects, fetchers, the cleaner."""
