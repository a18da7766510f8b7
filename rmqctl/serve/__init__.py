"""The network: a store that answers RocketMQ's clients as a broker and a name server.

What talks to clients is without I/O: bytes in, events out; events in, bytes out; no socket, no
clock, no thread. So every dialogue can be had in a test, again and again the same. Sockets and
threads are in ``listening``, ``sockets``, ``hasockets``, ``scrape``, ``readers`` and ``writer``.
"""
