"""The controllers of the exploration."""
