"""verify: finds what is wrong with a store in one pass over its log; the catalogue of findings.

Other rooms use:

- :mod:`~rmqctl.operations.verify.configcheck`
- :mod:`~rmqctl.operations.verify.directories`
- :mod:`~rmqctl.operations.verify.findings`
- :mod:`~rmqctl.operations.verify.inparts`
- :mod:`~rmqctl.operations.verify.latercodes`
- :mod:`~rmqctl.operations.verify.laterstart`
- :mod:`~rmqctl.operations.verify.queueext`
- :mod:`~rmqctl.operations.verify.snapshot`
- :mod:`~rmqctl.operations.verify.tiered`
"""

from rmqctl.operations.verify.findings import CODES, ERROR, INFO, WARNING, Finding
from rmqctl.operations.verify.run import Summary, verify
from rmqctl.operations.verify.stretch import STRUCTURES

__all__ = ["CODES", "ERROR", "INFO", "STRUCTURES", "WARNING", "Finding", "Summary", "verify"]
