"""rmqctl: Apache RocketMQ broker stores, offline.

The library yields facts (records, units, findings) and the command line prints them. Start at
:class:`rmqctl.engine.messagestore.MessageStore`.
"""

__version__ = "0.1.0"
