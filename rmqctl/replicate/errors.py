"""Errors that end the copying of a live store."""

from rmqctl.errors import RmqctlError


class MasterUnreachable(RmqctlError):
    template = (
        "no connection to {address}: {reason}. The copy stays as it is. Check the address (a "
        "broker's HA port is its own port + 1), and that the broker runs."
    )


class MasterSilent(RmqctlError):
    """Nothing has come for a long time, of a copy that was to end when it has everything."""

    template = (
        "nothing has come from {address} for {minutes} minutes: {reason}. The copy has what came "
        "before that. Run the same again when the broker runs: the copy is continued."
    )


class MasterRefused(RmqctlError):
    """The master does not answer what a slave has to know."""

    template = (
        "{address} does not answer as a broker that is copied by HA: {reason}. The copy stays as "
        "it is. Check that the address is a broker's."
    )


class MasterNotCopied(MasterRefused):
    """The store of this broker cannot be copied by HA; ``reason`` may say how it can be."""

    template = "{address} is not copied: {reason}. The copy stays as it is."


class MasterAsksWho(MasterRefused):
    """The master has ACL, and does not know who asks."""

    template = "{address} does not answer: {reason}. The copy stays as it is."
    step = "Give the keys of an account of it."
    command_step = (
        "Give an account of it with --acl-file: mqadmin's tools.yml, or the broker's own "
        "plain_acl.yml."
    )


class CopyDiffers(RmqctlError):
    """The copy is not the beginning of the master's log."""

    template = (
        "{path} is no copy of this master: {reason} (physical offset {physical_offset}). Nothing "
        "was changed. A master that was restored, or has lost its end, may have less than the copy:"
        " keep the copy."
    )
    step = "Copy into a new directory."
    command_step = "Copy into a new directory with --to; `rmqctl diff` compares two stores."


class CopyTooOld(RmqctlError):
    """The master has deleted the part of its log that follows the copy's end."""

    template = (
        "{path} ends at {end}, and the master's log begins at {start}: what is between is deleted "
        "there. Nothing was changed. Copy into a new directory."
    )


class CopyUnproven(CopyTooOld):
    """The master has deleted everything that the copy has: nothing proves that it is its copy."""

    template = (
        "{path} ends at {end}, and the master's log begins at {start}: it has no message that the "
        "copy has, and another broker's log could go on there as well. Nothing was changed."
    )
    step = "Copy into a new directory."
    command_step = "Copy into a new directory with --to, and keep this one for what is in it."


class BadLogReceived(RmqctlError):
    """The bytes that the master sends are no log."""

    template = (
        "what the master sends is no log: {reason} (physical offset {physical_offset}). The copy "
        "ends before that. Run `rmqctl verify` on the master's own disk."
    )
