"""The assignors of consumer groups, ``uniform`` and ``range``: exactly Kafka's assignments, for equal input."""
