"""Plays a broker's start without changing a byte: what it refuses, cuts and deletes.

:mod:`rmqctl.engine.start` plans a start that loses nothing; this room plays the start of a broker.
Other rooms use:

- :mod:`~rmqctl.engine.rehearsal.model`
- :mod:`~rmqctl.engine.rehearsal.rehearse`
"""
