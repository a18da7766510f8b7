"""Which messages of a queue are wanted: by tags, or by an SQL92 expression.

Other rooms use:

- :mod:`~rmqctl.engine.filters.sql`
- :mod:`~rmqctl.engine.filters.tags`
"""
