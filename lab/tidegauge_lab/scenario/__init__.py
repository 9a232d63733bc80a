"""Scenario files: a vocabulary of failures, a runner on real processes, and the stories that are shipped."""
