"""One record: read, judged, encoded; its body; what a put or a pull answers.

Other rooms use:

- :mod:`~rmqctl.engine.record.bodies`
- :mod:`~rmqctl.engine.record.entries`
- :mod:`~rmqctl.engine.record.fields`
- :mod:`~rmqctl.engine.record.filler`
- :mod:`~rmqctl.engine.record.form`
- :mod:`~rmqctl.engine.record.inbatch`
- :mod:`~rmqctl.engine.record.message`
- :mod:`~rmqctl.engine.record.pieces`
- :mod:`~rmqctl.engine.record.record`
- :mod:`~rmqctl.engine.record.status`
- :mod:`~rmqctl.engine.record.times`
"""
