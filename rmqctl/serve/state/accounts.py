"""``plain_acl.yml``: who may do what, as ``PlainPermissionManager`` of 4.9.3 reads it.

Stricter in one thing: what a broker passes over, a key that it does not know or a permission that
is none, is an error here. Whoever writes such a file means something by it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntFlag
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from formats.constants import RETRY_GROUP_TOPIC_PREFIX
from rmqctl.engine.files.paths import read_start
from rmqctl.serve.errors import AccountsUnreadable

T = TypeVar("T")

#: No file of a broker has as many bytes.
_MAX_BYTES = 1 << 20
ACCESS_KEY, SIGNATURE, SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"
#: Fields that prove who has asked (``SessionCredentials``).
CREDENTIALS = frozenset((ACCESS_KEY, SIGNATURE, SECURITY_TOKEN))
#: Fields that are not signed: the client adds the second one behind its signature.
_UNSIGNED = frozenset((SIGNATURE, "_UNIQUE_KEY_QUERY"))
_SHORTEST_KEY = 6
#: What a value with a tag of YAML's own raises that is none, ``!!bool maybe``.
_OF_A_TAG = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError, RecursionError)
_KEYS = ("accessKey", "secretKey")
_ADDRESS = re.compile(r"[0-9a-fA-F.:*{},\s-]{1,4096}")
_FIELDS = {
    "accessKey": str,
    "secretKey": str,
    "whiteRemoteAddress": str,
    "admin": bool,
    "defaultTopicPerm": str,
    "defaultGroupPerm": str,
    "topicPerms": list,
    "groupPerms": list,
}


class Perm(IntFlag):
    """``Permission``."""

    DENY = 1
    ANY = 2
    PUB = 4
    SUB = 8


@dataclass(frozen=True, slots=True)
class Account:
    """One account. ``perms`` are by topic; those of groups by ``%RETRY%group``."""

    access_key: str
    secret_key: bytes
    white: Addresses
    is_admin: bool
    default_topic: Perm
    default_group: Perm
    perms: Mapping[str, Perm]

    def may(self, resource: str, needed: Perm) -> bool:
        """``checkPerm``."""
        is_group = resource.startswith(RETRY_GROUP_TOPIC_PREFIX)
        owned = self.perms.get(resource, self.default_group if is_group else self.default_topic)
        return self.is_admin or allows(owned, needed)

    def signature(self, fields: Mapping[str, str], body: bytes) -> str:
        """:func:`signature` of a request."""
        return signature(self.secret_key, fields, body)


def signature(secret_key: bytes, fields: Mapping[str, str], body: bytes) -> str:
    """``AclUtils#calSignature`` of a request: of its fields in the order of their names, and its
    body."""
    texts = (fields[name] for name in sorted(fields) if name not in _UNSIGNED)
    content = "".join(texts).encode("utf-8", "replace") + body
    return base64.b64encode(hmac.digest(secret_key, content, hashlib.sha1)).decode()


def allows(owned: Perm, needed: Perm) -> bool:
    """``Permission#checkPermission``."""
    if owned & Perm.DENY:
        return False
    if needed & Perm.ANY:
        return bool(owned & (Perm.PUB | Perm.SUB))
    return bool(owned & needed)


class Addresses:
    """A white list (``RemoteAddressStrategyFactory``): single addresses, several with commas or in
    braces, ``*`` and ranges ``1-100`` in place of a number. :raises ValueError: it is none."""

    def __init__(self, text: str) -> None:
        text = text.strip()
        if text and not _ADDRESS.fullmatch(text):
            raise ValueError(f"{text[:80]!r} is no address")
        self._patterns = [list(map(_part, one.split("."))) for one in _alternatives(text)]
        self._plain = {one.lower() for one in _alternatives(text) if ":" in one}

    def match(self, address: str) -> bool:
        """:param address: of a peer, without its port."""
        if address.strip("[]").lower() in self._plain:
            return True
        parts = address.split(".")
        return any(_matches(pattern, parts) for pattern in self._patterns)


def _alternatives(text: str) -> Iterator[str]:
    """The addresses of a list. Braces stand for a part of one; commas outside of them divide."""
    for one in re.findall(r"(?:\{[^}]*\}|[^,{])+", text):
        pieces = [
            re.split(r"\s*,\s*", p.strip("{} ")) for p in re.findall(r"\{[^}]*\}|[^{}]+", one)
        ]
        if len(pieces) > 4 or any(len(piece) > 256 for piece in pieces):
            raise ValueError(f"{one[:80]!r} has too many braces")
        yield from ("".join(choice).strip() for choice in product(*pieces))


def _part(text: str) -> range:
    """The numbers that a part of an address may have. Of IPv6 there are none."""
    if text == "*":
        return range(256)
    if ":" in text:
        return range(0)
    low, _, high = text.partition("-")
    if not low.isdigit() or (high and not high.isdigit()):
        raise ValueError(f"{text[:40]!r} is no part of an address")
    found = range(int(low), int(high or low) + 1)
    if not found or found[-1] > 255:
        raise ValueError(f"{text[:40]!r} is no part of an address")
    return found


def _matches(pattern: list[range], parts: list[str]) -> bool:
    if len(pattern) == 1 and pattern[0] == range(256):
        return True
    if len(pattern) != 4 or len(parts) != 4 or not all(part.isdigit() for part in parts):
        return False
    return all(int(part) in allowed for allowed, part in zip(pattern, parts, strict=True))


class Accounts:
    """The accounts of a file, and the addresses that need none."""

    def __init__(self, white: list[Addresses], accounts: Mapping[str, Account]) -> None:
        self._white = white
        self._accounts = accounts

    def __len__(self) -> int:
        return len(self._accounts)

    def __iter__(self) -> Iterator[Account]:
        return iter(self._accounts.values())

    def is_free(self, address: str) -> bool:
        """Whether a peer may do everything (``globalWhiteRemoteAddresses``)."""
        return any(one.match(address) for one in self._white)

    def who(self, fields: Mapping[str, str], body: bytes, address: str) -> Account | str:
        """The account of a request, or why it is nobody's. From an address of its white list an
        account needs no signature."""
        key = fields.get(ACCESS_KEY)
        if not key:
            return "No accessKey is configured"
        account = self._accounts.get(key)
        if account is None:
            return f"No acl config for {key[:80]}"
        if account.white.match(address):
            return account
        told = fields.get(SIGNATURE, "").encode("utf-8", "replace")
        if not hmac.compare_digest(account.signature(fields, body).encode(), told):
            return f"Check signature failed for accessKey={key[:80]}"
        return account

    def is_trusted(self, account: Account, address: str) -> bool:
        """Whether a peer of an account is asked for nothing else, as a broker does it."""
        return account.white.match(address)


def load_accounts(path: Path) -> Accounts:
    """The accounts of a ``plain_acl.yml``.

    :raises AccountsUnreadable: there is none, it is none, or no package reads YAML.
    :raises CannotRead: the system refuses.
    """
    return read_yaml(path, accounts_of)


def read_yaml(
    path: Path, of: Callable[[Any], T], refused: type[AccountsUnreadable] = AccountsUnreadable
) -> T:
    """What ``of`` makes of the value in a file, whose ValueErrors say why it makes nothing; errors
    as of :func:`load_accounts`, or as ``refused`` words them."""
    try:
        import yaml
    except ImportError:
        from rmqctl.installed import install_command

        reason = f"to read it the package PyYAML is needed: `{install_command('serve')}`"
        raise refused(path=str(path), reason=reason) from None
    if not os.path.lexists(path):
        raise refused(path=str(path), reason="there is no such file")
    data = read_start(path, _MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise refused(path=str(path), reason=f"it has more than {_MAX_BYTES} bytes")
    try:
        value = yaml.safe_load(data)
    except (yaml.YAMLError, *_OF_A_TAG) as error:
        raise refused(path=str(path), reason=_where(error)) from None
    try:
        return of(value)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300]
        raise refused(path=str(path), reason=reason) from None


def _where(error: Exception) -> str:
    """Why a file is no YAML, with nothing of its text: what PyYAML says shows the line, and that
    may be one with a secret."""
    mark = getattr(error, "problem_mark", None)
    place = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
    return f"it is no YAML{place}: a text with signs in it may need quotes"


def key_text(value: Any) -> Any:
    """A key as a broker, and mqadmin, take it: one of digits need not be in quotes, as in the files
    that RocketMQ comes with. What is neither stays as it is."""
    return str(value) if type(value) is int else value


def accounts_of(value: Any) -> Accounts:
    """:raises ValueError: the value is none of such a file."""
    if not isinstance(value, dict) or not isinstance(value.get("accounts"), list):
        raise ValueError("it has no list of accounts")
    white = value.get("globalWhiteRemoteAddresses") or []
    if not isinstance(white, list) or not all(isinstance(one, str) for one in white):
        raise ValueError("globalWhiteRemoteAddresses is no list of texts")
    accounts: dict[str, Account] = {}
    for entry in value["accounts"]:
        account = _account(entry)
        if account.access_key in accounts:
            raise ValueError(f"the account {account.access_key!r} stands there twice")
        accounts[account.access_key] = account
    return Accounts([Addresses(one) for one in white if one.strip()], accounts)


def _account(entry: Any) -> Account:
    if not isinstance(entry, dict):
        raise ValueError("an account is no list of names and values")
    entry = entry | {one: key_text(entry[one]) for one in _KEYS if one in entry}
    name = str(entry.get("accessKey", "without accessKey"))[:80]
    for field, found in entry.items():
        if field not in _FIELDS or not isinstance(found, _FIELDS[field] | type(None)):
            raise ValueError(f"account {name}: {str(field)[:80]} is not known, or no such value")
    access_key, secret_key = entry.get("accessKey") or "", entry.get("secretKey") or ""
    if min(len(access_key), len(secret_key)) < _SHORTEST_KEY:
        raise ValueError(f"account {name}: a key has less than {_SHORTEST_KEY} characters")
    perms = dict(_perms(name, "", entry.get("topicPerms")))
    perms |= _perms(name, RETRY_GROUP_TOPIC_PREFIX, entry.get("groupPerms"))
    return Account(
        access_key,
        secret_key.encode(),
        Addresses(entry.get("whiteRemoteAddress") or ""),
        bool(entry.get("admin")),
        _perm(name, entry.get("defaultTopicPerm") or "DENY"),
        _perm(name, entry.get("defaultGroupPerm") or "DENY"),
        perms,
    )


def _perms(name: str, prefix: str, entries: Any) -> dict[str, Perm]:
    """``orders=PUB|SUB`` and its like."""
    found = {}
    for entry in entries or ():
        resource, equals, perm = str(entry).partition("=")
        if not equals or not resource.strip():
            raise ValueError(f"account {name}: {str(entry)[:80]!r} is not NAME=PERMISSIONS")
        found[prefix + resource.strip()] = _perm(name, perm)
    return found


def _perm(name: str, text: str) -> Perm:
    """``Permission#parsePermFromString``."""
    words = [word.strip() for word in text.split("|")]
    if any(word not in ("DENY", "PUB", "SUB") for word in words):
        raise ValueError(
            f"account {name}: {text[:40]!r} are no permissions: DENY, PUB, SUB, PUB|SUB"
        )
    perm = Perm(0)
    for word in words:
        perm |= Perm[word]
    return perm
