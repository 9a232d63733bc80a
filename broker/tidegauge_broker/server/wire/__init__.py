"""Speak to clients and peers: one room per wire protocol."""
