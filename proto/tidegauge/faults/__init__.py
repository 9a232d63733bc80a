"""The vocabulary of faults inside a broker: one declared table for every way to ask for one.

``table`` declares each fault and its parameters. The command line's options, the steps of scenario files, the methods
of ``Switches`` and of the pytest plugin, the page's form, the broker's own check and the tables in docs/ derive from
it; ``schema`` gives it as JSON.
"""
