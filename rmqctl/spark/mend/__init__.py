"""verify and rebuild on Spark.

Other rooms use:

- :mod:`~rmqctl.spark.mend.facts`
- :mod:`~rmqctl.spark.mend.rebuild`
- :mod:`~rmqctl.spark.mend.verify`
"""
