"""Errors that end a repair. After each of them the store is either unchanged, or its journal lets
``repair --resume`` and ``--undo`` go on."""

from __future__ import annotations

from rmqctl.errors import NeedsConsent, RmqctlError


class PlanUnreadable(RmqctlError):
    """A file that is no plan, or a plan that was changed by hand."""

    template = (
        "{path} is no plan of a repair that can be applied: {reason}. Nothing was changed. "
        "`rmqctl repair --plan FILE` makes a new one; whole steps may be left out of it, and "
        "nothing else changed."
    )


class PlanDoesNotFit(RmqctlError):
    """The plan was made for another store, or the store has changed since."""

    template = (
        "the plan does not fit {store}: {reason}. Nothing was changed. Make a new plan with "
        "`rmqctl repair --plan FILE`."
    )
    exit_code = 6


class RepairOvertaken(RmqctlError):
    """Another program has written to the store since a repair was cut off, or was done."""

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
