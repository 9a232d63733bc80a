"""Transactions: the states of transactional ids, and what changes them."""
