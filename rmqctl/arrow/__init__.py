"""Rows as columns of Apache Arrow, for Spark's tasks, Python's data tools and Parquet files.

This needs pyarrow, which only this room and that of Spark import. The columns and their types are
declared in :mod:`rmqctl.rows.columns`.
"""
