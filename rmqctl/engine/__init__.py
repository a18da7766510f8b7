"""How a store behaves: files, log, queues, index, checkpoint, lock, and the store over them.

Nothing here prints, prompts, reads the environment, or imports click, rich or pyspark. numpy is
imported only by the modules that work on batches (:mod:`~rmqctl.engine.scan.scanner` and what uses
it), so that a single put, pull or query starts fast.
"""
