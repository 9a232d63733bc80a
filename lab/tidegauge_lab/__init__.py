"""The lab: a local cluster to start, break and watch."""
