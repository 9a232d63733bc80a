"""Serve and call over gRPC: messages to plain values and back."""
