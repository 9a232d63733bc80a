"""Client quotas, pure: who has which, what is measured against it, and how long a client is throttled."""
