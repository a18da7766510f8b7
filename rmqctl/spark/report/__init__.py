"""Statistics, SQL and exports over the data source.

Other rooms use:

- :mod:`~rmqctl.spark.report.export`
- :mod:`~rmqctl.spark.report.sql`
- :mod:`~rmqctl.spark.report.stats`
- :mod:`~rmqctl.spark.report.views`
"""
