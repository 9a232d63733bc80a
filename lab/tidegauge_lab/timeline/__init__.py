"""One causal timeline over all brokers and the lab (row B8): read, filter, tell as text, draw."""
