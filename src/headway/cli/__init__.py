"""The `headway` command: one file per subcommand.

What does not belong here: anything that another program could want. A command parses its
arguments, calls the library and prints.
"""
