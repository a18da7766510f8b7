"""``rmqctl browse``: shows a store on a terminal, with Textual. It never writes to the store.

The model has the content of the lists. It does not know the terminal, and is called in threads.
Widgets draw lines, and screens connect both. :mod:`rmqctl.cli.browse.app` has what all screens
share.
"""
