"""What draws: lists of lines, the prompt, and threads that widgets wait for.

Other rooms use:

- :mod:`~rmqctl.cli.browse.widgets.lines`
- :mod:`~rmqctl.cli.browse.widgets.prompt`
- :mod:`~rmqctl.cli.browse.widgets.threads`
"""
