"""Runs this broker's coordinators: events in, effects out, and the requests that reach them."""
