"""The root command and the client verbs."""
