"""SASL: mechanisms, and the states of a connection that authenticates itself."""
