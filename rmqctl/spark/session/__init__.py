"""The Spark session: how it is made, its Java, jobs, progress, failures, staging directories.

Other rooms use:

- :mod:`~rmqctl.spark.session.failures`
- :mod:`~rmqctl.spark.session.jobs`
- :mod:`~rmqctl.spark.session.ownpython`
- :mod:`~rmqctl.spark.session.progress`
- :mod:`~rmqctl.spark.session.session`
- :mod:`~rmqctl.spark.session.staging`
"""
