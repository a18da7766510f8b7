"""The protocol: frames, both forms of a header, the fields of a request, JSON bodies.

Nothing here knows a store or what a request means.

Other rooms use:

- :mod:`~rmqctl.serve.wire.bodies`
- :mod:`~rmqctl.serve.wire.command`
- :mod:`~rmqctl.serve.wire.fields`
- :mod:`~rmqctl.serve.wire.frames`
- :mod:`~rmqctl.serve.wire.header`
"""
