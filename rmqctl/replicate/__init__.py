"""A copy of a live broker's store, made as a slave makes one: the log by HA, then queues and index
of its own, and the files of ``config/`` as a slave fetches them.

All of it but one file is without sockets and without a clock.
"""
