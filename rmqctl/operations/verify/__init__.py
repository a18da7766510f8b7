"""verify: the whole store against itself. Damage never ends it, and nothing is changed.

The log is scanned once; queues and index are compared with it as it goes by. Findings come in the
order in which they are met, and a :class:`Summary` closes them.
"""

from rmqctl.operations.verify.findings import CODES, ERROR, INFO, WARNING, Finding
from rmqctl.operations.verify.run import Summary, verify

__all__ = ["CODES", "ERROR", "INFO", "WARNING", "Finding", "Summary", "verify"]
