"""The sections of ``stats``, in both of its engines: what messages are counted by."""

from __future__ import annotations

HOUR = 3_600_000
#: Upper limits of the classes of delay, in milliseconds; what is more is one class.
DELAYS = (0, 1, 10, 100, 1000, 10_000, 60_000, 600_000, HOUR)
#: What a section's rows are grouped by; ``broker`` is for several stores.
SECTIONS: dict[str, tuple[str, ...]] = {
    "broker": ("broker",),
    "topic": ("topic",),
    "queue": ("topic", "queue_id"),
    "tag": ("topic", "tag"),
    "hour": ("hour",),
    "producer": ("producer",),
    "size": ("body_length_up_to",),
    "delay": ("delay_ms_up_to",),
}
#: Sections in the order of their values; the others begin with the most messages.
BY_VALUE = frozenset(("hour", "size", "delay"))
