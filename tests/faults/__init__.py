"""Damages the golden stores, with one random fault at a time, and looks whether verify finds it.

``python -m tests.faults --write`` tries ten thousand faults and writes a table of them into
``docs/explanation/what-verify-finds.md``; ``tests/test_operations/test_faults.py`` tries some
hundred in each run of the tests.
"""
