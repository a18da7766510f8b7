"""Signs requests to a broker with ACL, as ``AclClientRPCHook`` does."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqctl.serve.errors import CredentialsUnreadable
from rmqctl.serve.state import accounts
from rmqctl.serve.wire.command import RemotingCommand

#: The keys of mqadmin's ``tools.yml``, which holds one account and nothing else.
_TOOLS = {"accessKey", "secretKey", "securityToken"}


@dataclass(frozen=True, slots=True)
class Credentials:
    """One account's keys."""

    access_key: str
    secret_key: bytes = field(repr=False)
    security_token: str = field(default="", repr=False)

    def signed(self, request: RemotingCommand) -> RemotingCommand:
        """The request with the account's access key and its signature."""
        fields = {**request.ext_fields, accounts.ACCESS_KEY: self.access_key}
        if self.security_token:
            fields[accounts.SECURITY_TOKEN] = self.security_token
        fields[accounts.SIGNATURE] = accounts.signature(self.secret_key, fields, request.body)
        return RemotingCommand(request.code, request.opaque, ext_fields=fields, body=request.body)


def load_credentials(path: Path, access_key: str | None) -> Credentials:
    """The keys of a ``tools.yml``, or of an account of a ``plain_acl.yml``: the one that
    ``access_key`` names, else the first administrator, else the only account.

    :raises CredentialsUnreadable: the file has no account, or not that one.
    :raises CannotRead: the system refuses.
    """
    return accounts.read_yaml(
        path, lambda value: _credentials(value, access_key), CredentialsUnreadable
    )


def _credentials(value: Any, access_key: str | None) -> Credentials:
    """:raises ValueError: the value has no such account."""
    if isinstance(value, dict) and "accounts" not in value and value.keys() <= _TOOLS:
        names = ("accessKey", "secretKey", "securityToken")
        texts = [accounts.key_text(value.get(name)) or "" for name in names]
        if not all(isinstance(one, str) for one in texts) or not all(texts[:2]):
            raise ValueError("accessKey and secretKey are to be texts: put them into quotes")
        found = [Credentials(texts[0], texts[1].encode(), texts[2])]
    else:
        known = sorted(accounts.accounts_of(value), key=lambda one: not one.is_admin)
        found = [Credentials(one.access_key, one.secret_key) for one in known]
        if access_key is None and len(known) > 1 and not known[0].is_admin:
            raise ValueError("none of its accounts is an administrator: --access-key says which")
    chosen = [one for one in found if access_key in (None, one.access_key)]
    if not chosen:
        raise ValueError(f"it has no account {access_key!r}" if access_key else "it has no account")
    return chosen[0]
