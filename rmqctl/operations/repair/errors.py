"""What ends a repair; in all cases the store is as it was, or its journal says how to go on."""

from __future__ import annotations

from rmqctl.errors import NeedsConsent, RmqctlError


class PlanUnreadable(RmqctlError):
    """A file that is no plan, or one that somebody has changed."""

    template = (
        "{path} is no plan of a repair that can be applied: {reason}. Nothing was changed. "
        "`rmqctl repair --plan FILE` makes a new one; whole steps may be left out of it, and "
        "nothing else changed."
    )


class PlanDoesNotFit(RmqctlError):
    """The store is another one than the plan was made for, or has gone on since."""

    template = (
        "the plan does not fit {store}: {reason}. Nothing was changed. Make a new plan with "
        "`rmqctl repair --plan FILE`."
    )
    exit_code = 6


class RepairOvertaken(RmqctlError):
    """Somebody has written to the store since a repair was cut off, or done."""

    template = (
        "the repair cannot be {verb}: {reason}. Nothing was changed. What it replaced is whole in "
        "{kept}: take from there what you want, move that directory out of the store, and make a "
        "new plan."
    )
    exit_code = 6


class RepairCutOff(RmqctlError):
    template = (
        "cannot write {path}: {reason}. The repair was cut off, and the store is between old and "
        "new. When that is mended (room, rights) `rmqctl repair --resume` ends it; `rmqctl repair "
        "--undo` takes it back."
    )


class NoRepair(RmqctlError):
    template = "there is no repair of {store} that could be {verb}."
    step = "`rmqctl repair --plan FILE` says what could be mended."
    exit_code = 1


class UndoNeedsConsent(NeedsConsent):
    command_step = "Say --yes to do it."
