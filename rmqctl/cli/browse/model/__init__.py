"""The content of the lists, as lines that are read when they are shown. Does not know the terminal.

Other rooms use:

- :mod:`~rmqctl.cli.browse.model.findings`
- :mod:`~rmqctl.cli.browse.model.job`
- :mod:`~rmqctl.cli.browse.model.lines`
- :mod:`~rmqctl.cli.browse.model.log`
- :mod:`~rmqctl.cli.browse.model.message`
- :mod:`~rmqctl.cli.browse.model.messages`
- :mod:`~rmqctl.cli.browse.model.opened`
- :mod:`~rmqctl.cli.browse.model.queues`
"""
