"""A store that is open for writing: put, bulk put, flush, recovery.

Other rooms use:

- :mod:`~rmqctl.engine.write.appended`
- :mod:`~rmqctl.engine.write.assemble`
- :mod:`~rmqctl.engine.write.bulk`
- :mod:`~rmqctl.engine.write.checks`
- :mod:`~rmqctl.engine.write.compiled`
- :mod:`~rmqctl.engine.write.context`
- :mod:`~rmqctl.engine.write.drylines`
- :mod:`~rmqctl.engine.write.lines`
- :mod:`~rmqctl.engine.write.recovery`
- :mod:`~rmqctl.engine.write.stats`
- :mod:`~rmqctl.engine.write.storeflusher`
- :mod:`~rmqctl.engine.write.storewriter`
"""
