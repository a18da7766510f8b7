"""A broker's start, played through without a byte changed: what it refuses, cuts and deletes.

:mod:`rmqctl.engine.start` plans a start that loses nothing; here is the one that a broker does.
Other rooms use:

- :mod:`~rmqctl.engine.rehearsal.model`
- :mod:`~rmqctl.engine.rehearsal.rehearse`
"""
