"""Client quotas, pure: their owners, the values measured against them, and throttle times."""
