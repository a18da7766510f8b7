"""Files as bytes: maps, ranges of files, holes, locks, and how a path is reached safely.

Other rooms use:

- :mod:`~rmqctl.engine.files.again`
- :mod:`~rmqctl.engine.files.answers`
- :mod:`~rmqctl.engine.files.behind`
- :mod:`~rmqctl.engine.files.bufferpool`
- :mod:`~rmqctl.engine.files.dirty`
- :mod:`~rmqctl.engine.files.durable`
- :mod:`~rmqctl.engine.files.extents`
- :mod:`~rmqctl.engine.files.filequeue`
- :mod:`~rmqctl.engine.files.filequeuewriter`
- :mod:`~rmqctl.engine.files.holes`
- :mod:`~rmqctl.engine.files.keptpages`
- :mod:`~rmqctl.engine.files.lock`
- :mod:`~rmqctl.engine.files.mappedfile`
- :mod:`~rmqctl.engine.files.newdirectory`
- :mod:`~rmqctl.engine.files.newnames`
- :mod:`~rmqctl.engine.files.opencache`
- :mod:`~rmqctl.engine.files.openfiles`
- :mod:`~rmqctl.engine.files.owndirectory`
- :mod:`~rmqctl.engine.files.owner`
- :mod:`~rmqctl.engine.files.pagelock`
- :mod:`~rmqctl.engine.files.paths`
- :mod:`~rmqctl.engine.files.shown`
- :mod:`~rmqctl.engine.files.unfinished`
- :mod:`~rmqctl.engine.files.urls`
- :mod:`~rmqctl.engine.files.writeback`
- :mod:`~rmqctl.engine.files.writing`
"""
