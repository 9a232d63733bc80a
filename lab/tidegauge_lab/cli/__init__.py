"""The lab's verbs; each module is loaded only when one of its verbs is called."""
