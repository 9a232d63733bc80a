"""One causal timeline over all brokers and the lab: read, filter, print, draw."""
