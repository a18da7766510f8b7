"""The compiled kernel: what it is beside the pure engine, and how it gets there."""
