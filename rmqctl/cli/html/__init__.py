"""Pages for a browser: one file each, no network, light and dark, narrow and wide.

What a store's page (:mod:`~rmqctl.cli.storepage`) and that of statistics
(:mod:`~rmqctl.cli.statspage`) share: the document with its policy, the styles, the escaping.
"""
