"""The Python API: a store, its topics, its queues and its messages as Python objects.

It presents the engine and the operations that the command line uses, in the manners of Python:
mappings and slices, context managers, ``ValueError`` after a close, warnings for what cannot be
read. The public names are in :data:`rmqctl.__all__`. Other rooms use none of it.
"""
