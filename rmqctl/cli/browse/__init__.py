"""``rmqctl browse``: a store looked at on a terminal, with Textual. Nothing here writes.

The model says what there is to show, and is asked in threads; it knows no terminal. Widgets draw
lines, screens put both together, and :mod:`rmqctl.cli.browse.app` holds what the screens share.
"""
