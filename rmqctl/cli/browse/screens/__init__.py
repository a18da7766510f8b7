"""The screens, and which key leads to which.

Other rooms use:

- :mod:`~rmqctl.cli.browse.screens.help`
- :mod:`~rmqctl.cli.browse.screens.lists`
- :mod:`~rmqctl.cli.browse.screens.page`
- :mod:`~rmqctl.cli.browse.screens.places`
"""
