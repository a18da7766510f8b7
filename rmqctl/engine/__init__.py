"""The behaviour of a store: files, log, queues, index, checkpoint, lock, and the whole store.

Nothing here prints, prompts, reads the environment, or imports click, rich or pyspark. Only modules
that work on batches import numpy (:mod:`~rmqctl.engine.scan.scanner` and its users), so a single
put, pull or query starts fast.
"""
