"""What the commands do on Spark, for programs and notebooks. Results are data frames and values.

Other rooms use:

- :mod:`~rmqctl.spark.procedures.fewstats`
- :mod:`~rmqctl.spark.procedures.fleet`
- :mod:`~rmqctl.spark.procedures.fleettask`
- :mod:`~rmqctl.spark.procedures.rebuilding`
- :mod:`~rmqctl.spark.procedures.stores`
"""
