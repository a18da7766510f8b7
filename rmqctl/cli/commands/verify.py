"""``rmqctl verify``."""

from __future__ import annotations

from rmqctl.cli.options import Settings, common
from rmqctl.cli.options import command as make


@make(
    "verify",
    examples=[
        "rmqctl verify --store DIR",
        "rmqctl verify --store DIR --broker-conf broker.conf --format ndjson",
        "rmqctl verify --store DIR -q && echo sound",
    ],
    exits={1: "errors or warnings were found"},
)
@common
def command(settings: Settings) -> int:
    """Check the whole store against itself: log, queues, index, checkpoint, directories.

    Prints rows of type finding, then a summary. Damage never ends the check, and nothing is
    changed; it works beside a running broker. Severity info is worth knowing and does not count
    for the exit status.
    """
    from rmqctl.operations.verify import Finding, verify

    advice: dict[str, str] = {}
    clean = True
    with (
        settings.writer("finding") as writer,
        settings.progress("verify") as advance,
    ):
        for found in verify(settings.root, settings.config, advance):
            if isinstance(found, Finding):
                writer.row({"type": "finding", **found._asdict()})
                advice.setdefault(found.code, found.advice)
            else:
                clean = found.is_clean
                writer.summary(**found.row())
    if settings.format == "table":
        for code, text in advice.items():
            settings.note(f"{code}: {text}")
    return int(not clean)
