"""The page's two tables: how many of the faults verify finds, and why it does not find the rest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.faults.anatomy import STRUCTURES, UNWRITTEN
from tests.faults.kinds import KINDS
from tests.faults.trials import FOUND, MISSED, NOTED, Trial

PAGE = Path(__file__).resolve().parents[2] / "docs/explanation/what-verify-finds.md"
BEGIN, END = "<!-- faults: python -m tests.faults --write -->", "<!-- end of faults -->"

_ONCE = "stands nowhere else in a store"
_NO_UNIT = (
    "of half messages, which have no unit; of delayed ones, whose unit has the time of delivery"
)
_LESS = "an earlier time: a start reads more of the log, and loses nothing"
_LATER = "4.9.3 neither reads nor writes it"
_AGAIN = "of the newest messages: the next start writes these units again (`dispatch-behind`)"
_INDEX_AGAIN = "after a crash: a start throws that file away and indexes again (`index-behind`)"
#: Why verify may have no error or warning for a fault, by structure and what was damaged.
REASONS: dict[tuple[str, str], str] = {
    ("log", "flag"): f"the producer's own; {_ONCE}",
    ("log", "born_timestamp"): f"the producer's clock; {_ONCE}",
    ("log", "born_address"): f"who sent it; {_ONCE}",
    ("log", "born_port"): f"{_ONCE}; only ports at which a client gives up are named",
    ("log", "store_address"): f"which broker stored it; {_ONCE}",
    ("log", "store_port"): f"{_ONCE}; only ports at which a client gives up are named",
    ("log", "store_timestamp"): (
        "of messages without keys, where a clock may show it; of others the index has the second"
    ),
    ("log", "reconsume_times"): f"how often a consumer has sent it back; {_ONCE}",
    ("log", "prepared_transaction_offset"): f"{_ONCE}, and no consumer sees it",
    ("log", "sys_flag"): "bits that a producer may set, and that change neither length nor units",
    ("log", "other properties"): "queues repeat tags, the index keys, and nothing the others",
    ("log", "TAGS"): _NO_UNIT,
    ("log", "KEYS"): "of rolled back messages, which are not indexed",
    ("log", "UNIQ_KEY"): "of rolled back messages, which are not indexed",
    ("log", "queue_id"): _NO_UNIT,
    ("log", "queue_offset"): _NO_UNIT,
    ("log", "topic"): _NO_UNIT,
    ("log", "the first one"): "that is what retention does (`log-starts-late`)",
    ("log", "rest of a blank"): "bytes that nobody reads",
    ("queues", "a page"): _AGAIN,
    ("queues", "the last one"): _AGAIN,
    ("queues", "the only one"): _AGAIN,
    ("queues", "the first one"): _AGAIN,
    ("queues", "one of several"): _AGAIN,
    ("queues", "its data"): _AGAIN,
    ("queues", "physical_offset"): _AGAIN,
    ("queues", "size"): _AGAIN,
    ("queues", "tags_code"): _AGAIN,
    ("index", "a page"): _INDEX_AGAIN,
    ("index", "the last one"): _INDEX_AGAIN,
    ("index", "the only one"): _INDEX_AGAIN,
    ("index", "item 0, which is not used"): "bytes that nobody reads",
    ("extension", "extension unit"): "a bit map: it follows from a broker's filters, not the log",
    ("checkpoint", "physic_msg_timestamp"): _LESS,
    ("checkpoint", "logics_msg_timestamp"): _LESS,
    ("checkpoint", "index_msg_timestamp"): (
        "an earlier time: after a crash a start throws more index files away, and no message"
    ),
    ("checkpoint", "master_flushed_offset"): _LATER,
    ("checkpoint", "confirm_phy_offset"): _LATER,
    ("checkpoint", UNWRITTEN): "the fields are there, and a broker makes the file long again",
}


def unexplained(tried: Iterable[Trial]) -> list[Trial]:
    """The trials whose fault was not found and for which :data:`REASONS` has no reason."""
    return [
        trial
        for trial in tried
        if trial.verdict != FOUND and (trial.fault.structure, trial.fault.what) not in REASONS
    ]


def table(tried: list[Trial]) -> str:
    """Both tables. :raises KeyError: a fault was not found, and :data:`REASONS` has no reason."""
    return f"{_by_kind(tried)}\n\n{_by_place(tried)}\n"


def _by_kind(tried: list[Trial]) -> str:
    counts: Counter[tuple[str, str, str]] = Counter()
    for trial in tried:
        fault = trial.fault
        for kind in (fault.kind, "all"):
            for structure in (fault.structure, "all"):
                counts[kind, structure, trial.verdict] += 1
    structures = [*STRUCTURES.values(), "all"]
    lines = [f"| | {' | '.join(structures)} |", "|---" * (len(structures) + 1) + "|"]
    for kind in (*KINDS, "all"):
        cells = []
        for structure in structures:
            found, noted, missed = (counts[kind, structure, v] for v in (FOUND, NOTED, MISSED))
            total = found + noted + missed
            cells.append(f"{_share(found, total)} of {total:,}" if total else "")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _share(part: int, whole: int) -> str:
    """A percentage; it is 100 only for all, and 0 only for none."""
    share = 100 * part / whole
    if part not in (0, whole):
        share = min(max(share, 0.1), 99.9)
    return f"{share:.1f} %" if part not in (0, whole) else f"{share:.0f} %"


def _by_place(tried: list[Trial]) -> str:
    """A line for each place of which not every fault was found."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for trial in tried:
        counts[trial.fault.structure, trial.fault.what][trial.verdict] += 1
    order = list(STRUCTURES.values())
    lines = ["| in | hit | found | said as info | not found | why |", "|---|---|---|---|---|---|"]
    for (structure, what), verdicts in sorted(
        counts.items(), key=lambda one: (order.index(one[0][0]), one[0][1])
    ):
        if verdicts[NOTED] or verdicts[MISSED]:
            shown = f"`{what}`" if "_" in what or what.isupper() or what == "flag" else what
            numbers = " | ".join(f"{verdicts[name]:,}" for name in (FOUND, NOTED, MISSED))
            lines.append(f"| {structure} | {shown} | {numbers} | {REASONS[structure, what]} |")
    return "\n".join(lines)


def with_table(page: str, shown: str) -> str:
    """The page with these tables in place of its own. :raises ValueError: it has none."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{PAGE} has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n\n{shown}\n{END}{after}"
