"""Verbs of the command line that search for violations: simulate, explore, replay."""
