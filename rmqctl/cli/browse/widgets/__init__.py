"""Widgets: the list of lines, the prompt, and background threads.

Other rooms use:

- :mod:`~rmqctl.cli.browse.widgets.lines`
- :mod:`~rmqctl.cli.browse.widgets.prompt`
- :mod:`~rmqctl.cli.browse.widgets.threads`
"""
