"""Index files: slots, items and chains, lookups, recovery, and the service over all files.

Other rooms use:

- :mod:`~rmqctl.engine.index.geometry`
- :mod:`~rmqctl.engine.index.header`
- :mod:`~rmqctl.engine.index.indexfile`
- :mod:`~rmqctl.engine.index.indexfilewriter`
- :mod:`~rmqctl.engine.index.indexservice`
- :mod:`~rmqctl.engine.index.indexwriter`
- :mod:`~rmqctl.engine.index.links`
- :mod:`~rmqctl.engine.index.lookup`
- :mod:`~rmqctl.engine.index.mending`
- :mod:`~rmqctl.engine.index.newslots`
- :mod:`~rmqctl.engine.index.recovery`
"""
