"""rmqctl: Apache RocketMQ broker stores, offline.

    import rmqctl

    with rmqctl.open("/data/rocketmq/store") as store:
        for message in store.topics["orders"].queues[0][10:20]:
            print(message.queue_offset, message.keys, message.body)

What is in ``__all__`` is for everybody, and is loaded when it is asked for; beneath it lie
:mod:`rmqctl.engine` and :mod:`rmqctl.operations`, which the command line is made of as well.
"""

# Type checkers take it for true; typing is not imported for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from rmqctl import errors as errors
    from rmqctl.errors import RmqctlError as RmqctlError
    from rmqctl.library.damage import DamageWarning as DamageWarning
    from rmqctl.library.message import Message as Message
    from rmqctl.library.messages import Messages as Messages
    from rmqctl.library.queue import Queue as Queue
    from rmqctl.library.store import Store as Store
    from rmqctl.library.store import open as open
    from rmqctl.library.topic import Topic as Topic

__version__ = "0.1.0"

_HOMES = {
    "DamageWarning": "rmqctl.library.damage",
    "Message": "rmqctl.library.message",
    "Messages": "rmqctl.library.messages",
    "Queue": "rmqctl.library.queue",
    "RmqctlError": "rmqctl.errors",
    "Store": "rmqctl.library.store",
    "Topic": "rmqctl.library.topic",
    "open": "rmqctl.library.store",
}
__all__ = [
    "DamageWarning",
    "Message",
    "Messages",
    "Queue",
    "RmqctlError",
    "Store",
    "Topic",
    "__version__",
    "errors",
    "open",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name == "errors":
            return import_module("rmqctl.errors")
        if name not in _HOMES:
            raise AttributeError(f"module 'rmqctl' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
