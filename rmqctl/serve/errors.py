"""Errors that keep a server from starting."""

from rmqctl.errors import NeedsConsent, RmqctlError, UsageError


class AccountsUnreadable(UsageError):
    """A file of accounts that a broker would not take, or that cannot be read as YAML."""

    template = "{path}: {reason}. Give a plain_acl.yml, as a broker of 4.9.3 has it in its conf."


class CredentialsUnreadable(AccountsUnreadable):
    """A file of keys that is neither mqadmin's nor a broker's."""

    template = (
        "{path}: {reason}. Give mqadmin's tools.yml (accessKey and secretKey), or a broker's "
        "plain_acl.yml."
    )


class TlsUnusable(UsageError):
    """A certificate or a key that cannot be used for TLS."""

    template = "{path}: {reason}. Give a certificate and its key as PEM files, without a password."


class OffsetsBeyondEnd(NeedsConsent):
    command_step = "With `--offsets-beyond-end end` these groups go on at the end."


class CannotListen(RmqctlError):
    """``option`` is that of the command line which says where."""

    template = "cannot listen on {address}: {reason}."
    command_step = "Give another place with {option}."

    def __init__(self, *, option: str = "--listen", **values: object) -> None:
        super().__init__(option=option, **values)
