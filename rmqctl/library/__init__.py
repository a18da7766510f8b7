"""What programs use: a store, its topics and queues, and messages, as Python has such things.

It is the engine and the operations beneath the command line, in Python's manners: mappings and
slices, context managers, ``ValueError`` after a close, warnings for what cannot be read. What is
public is in :data:`rmqctl.__all__`. Other rooms use none of it.
"""
