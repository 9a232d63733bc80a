"""One module per API, or per few that belong together.

Its ``API``, or its ``SERVED_APIS``, says all that a broker says about serving it; ``served`` finds them.
"""
