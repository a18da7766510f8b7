"""A broker's other state: checkpoint, JSON files, structures of later versions.

Other rooms use:

- :mod:`~rmqctl.engine.state.brokerjson`
- :mod:`~rmqctl.engine.state.checkpoint`
- :mod:`~rmqctl.engine.state.consumeroffsets`
- :mod:`~rmqctl.engine.state.controller`
- :mod:`~rmqctl.engine.state.dledger`
- :mod:`~rmqctl.engine.state.fastjson`
- :mod:`~rmqctl.engine.state.laterversions`
- :mod:`~rmqctl.engine.state.orderinfo`
- :mod:`~rmqctl.engine.state.persist`
- :mod:`~rmqctl.engine.state.rocksdb`
- :mod:`~rmqctl.engine.state.rocksdbqueues`
- :mod:`~rmqctl.engine.state.topicconfig`
"""
