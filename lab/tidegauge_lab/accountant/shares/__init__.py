"""Share groups (KIP-932) in histories of clients: deliveries, their counts and members, and broken guarantees. Pure."""
