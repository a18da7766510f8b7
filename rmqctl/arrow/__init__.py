"""The same facts as columns of Apache Arrow: what Spark's tasks send, Python's data tools take, and
Parquet files hold.

Needs pyarrow, which this room and that of Spark alone import; the columns and their types are
declared in :mod:`rmqctl.rows.columns`.
"""
