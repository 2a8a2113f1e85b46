"""One module per subcommand: NAME, SUMMARY, DESCRIPTION, EXAMPLE, add_arguments, run.

A module imports torch, Bokeh, pandas and the like only inside ``run``: --help stays quick.
"""
