"""Share groups (KIP-932) in histories of clients: what was given, how often, to whom, what that breaks. Pure."""
