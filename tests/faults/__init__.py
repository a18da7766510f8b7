"""Random single faults over the golden stores, and what verify says of each.

``python -m tests.faults --write`` tries ten thousand and writes their table into
``docs/explanation/what-verify-finds.md``; ``tests/test_operations/test_faults.py`` tries some
hundred in each run of the tests.
"""
