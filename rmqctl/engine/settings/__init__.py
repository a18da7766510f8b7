"""A store's configuration: broker.conf, sizes of files, directories of the log.

Other rooms use:

- :mod:`~rmqctl.engine.settings.clock`
- :mod:`~rmqctl.engine.settings.filesizes`
- :mod:`~rmqctl.engine.settings.logdirectories`
- :mod:`~rmqctl.engine.settings.properties`
- :mod:`~rmqctl.engine.settings.storeconfig`
"""
