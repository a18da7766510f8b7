"""Errors that end a repair. After each of them the store is either unchanged, or has a journal with
which ``repair --resume`` or ``repair --undo`` can continue."""

from __future__ import annotations

from rmqctl.errors import NeedsConsent, RmqctlError


class PlanUnreadable(RmqctlError):
    """A file that is not a plan, or a plan that was changed by hand."""

    template = (
        "{path} is no plan of a repair that can be applied: {reason}. Nothing was changed. "
        "`rmqctl repair --plan FILE` makes a new one. You may remove whole steps from it, but not "
        "change anything else."
    )


class PlanDoesNotFit(RmqctlError):
    """The plan was made for another store, or the store has changed since."""

    template = (
        "the plan does not fit {store}: {reason}. Nothing was changed. Make a new plan with "
        "`rmqctl repair --plan FILE`."
    )
    exit_code = 6


class RepairOvertaken(RmqctlError):
    """Another program has written to the store since a repair was interrupted, or completed."""

    template = (
        "the repair cannot be {verb}: {reason}. Nothing was changed. All that it replaced is in "
        "{kept}: take from there what you need, move that directory out of the store, and make a "
        "new plan."
    )
    exit_code = 6


class RepairCutOff(RmqctlError):
    template = (
        "cannot write {path}: {reason}. The repair was interrupted: some of the store is old, some "
        "new. When there is space and permission to write, `rmqctl repair --resume` completes it; "
        "`rmqctl repair --undo` takes it back."
    )


class NoRepair(RmqctlError):
    template = "there is no repair of {store} that could be {verb}."
    step = "`rmqctl repair --plan FILE` says what can be repaired."
    exit_code = 1


class UndoNeedsConsent(NeedsConsent):
    command_step = "Say --yes to do it."
