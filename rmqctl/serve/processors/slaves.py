"""Requests of slaves to the name server: who their master is (``DefaultRequestProcessor`` of the
name server). Clients are told of no other broker than this one."""

from __future__ import annotations

from formats.remotingcodes import ResponseCode
from rmqctl.serve.processors.refused import not_supported
from rmqctl.serve.processors.request import Request, Served
from rmqctl.serve.wire.command import RemotingCommand


def register_broker(served: Served, request: Request) -> RemotingCommand:
    """``registerBroker`` from a slave of this broker: the slave is told the address for its log,
    and nothing is noted. Another master is refused, for it would take over the routes."""
    fields = request.fields
    name, number = fields.text("brokerName"), fields.int64("brokerId")
    if not served.ha_port:
        return not_supported(served, request)
    if name != served.names.broker or number <= 0:
        remark = f"only slaves of {served.names.broker} register here"
        return request.command.answer(ResponseCode.NO_PERMISSION, remark)
    address = served.address_for(request.channel)
    host, _, _ = address.rpartition(":")
    addresses = {"haServerAddr": f"{host}:{served.ha_port}", "masterAddr": address}
    return request.command.answer(ResponseCode.SUCCESS, None, addresses)


def unregister_broker(served: Served, request: Request) -> RemotingCommand:
    """``unregisterBroker``, with which a slave stops."""
    if not served.ha_port:
        return not_supported(served, request)
    return request.command.answer(ResponseCode.SUCCESS)
