"""The store that a command works on, and its ``broker.conf``: found here, in one order.

The store: ``--store``, else ``RMQCTL_STORE``, else what the broker.conf names. The broker.conf:
``--broker-conf``, else that of a store by name (``@prod-a``), else ``RMQCTL_BROKER_CONF``. Names
stand in ``config.toml`` of the user (``docs/reference/configuration.md``).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from rmqctl.errors import BrokerConfError, NotAStore, StoreNotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A text that begins with it is a store's name, and not a directory.
SIGN = "@"
#: Bytes: a file of names is small.
_MOST_BYTES = 1 << 20


class UserConfigError(UsageError):
    """The user's file of stores by name cannot be read as one."""

    template = (
        "{path}: {reason}. Give tables such as [stores.prod-a] with `store` and `broker_conf`, "
        "absolute paths; `rmqctl config stores` shows what it names."
    )


class NamedStoreUnknown(UsageError):
    """No store has the name of ``--store @name``."""

    template = (
        "no store has the name @{name}: {path} {known}. Add [stores.{name}] with `store` or "
        "`broker_conf` to it, or give the directory (./@{name} where it is called so)."
    )


class NamedStore(NamedTuple):
    """A store of ``config.toml``: a directory, pattern or URL, a broker.conf, or both."""

    name: str
    store: str | None
    broker_conf: str | None

    def root(self) -> str:
        """The store; :raises UsageError: nothing says where it lies."""
        if self.store is not None:
            return self.store
        return str(_named_by(self.broker_conf or "", f"a `store` for {SIGN}{self.name}"))


def user_config() -> Path:
    """``rmqctl/config.toml`` where the user's configuration lies (``XDG_CONFIG_HOME``)."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    # A relative one is to be ignored: XDG Base Directory Specification.
    home = Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~/.config"))
    return home / "rmqctl" / "config.toml"


def named_stores() -> dict[str, NamedStore]:
    """The stores of the user's file by their names; none where there is no file.

    :raises UserConfigError: it cannot be read, or something else than stores stands in it.
    """
    import tomllib

    path = user_config()
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UserConfigError(path=str(path), reason=error.strerror) from error
    if len(data) > _MOST_BYTES:
        raise UserConfigError(path=str(path), reason=f"it has more than {_MOST_BYTES} bytes")
    try:
        table = tomllib.loads(data.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserConfigError(path=str(path), reason=f"it is no TOML: {error}") from error
    strange = sorted(set(table) - {"stores"})
    if strange:
        raise UserConfigError(path=str(path), reason=f"it has an unknown entry {strange[0]!r}")
    stores = table.get("stores", {})
    if not isinstance(stores, dict):
        raise UserConfigError(path=str(path), reason="`stores` is no table")
    return {name: _named_store(name, entry, path) for name, entry in stores.items()}


def _named_store(name: str, entry: object, path: Path) -> NamedStore:
    where = f"[stores.{name}]"
    if not isinstance(entry, dict):
        raise UserConfigError(path=str(path), reason=f"{where} is no table")
    for key, value in entry.items():
        if key not in ("store", "broker_conf"):
            raise UserConfigError(path=str(path), reason=f"{where} has an unknown entry {key!r}")
        if not isinstance(value, str) or not value:
            raise UserConfigError(path=str(path), reason=f"{key} of {where} is no path")
        if "://" not in value and not os.path.isabs(os.path.expanduser(value)):
            reason = f"{key} of {where} is {value!r}, which depends on where one stands"
            raise UserConfigError(path=str(path), reason=reason)
    if not entry:
        raise UserConfigError(path=str(path), reason=f"{where} names neither store nor broker_conf")
    given = {key: os.path.expanduser(value) for key, value in entry.items()}
    return NamedStore(name, given.get("store"), given.get("broker_conf"))


def root_or_none(store: NamedStore) -> str | None:
    """Where a named store lies; None where nothing says it."""
    try:
        return store.root()
    except (click.UsageError, BrokerConfError):
        return None


def problem_of(store: NamedStore) -> str | None:
    """Why a named store cannot be used, in words; None where it can. Patterns and URLs are not
    looked up."""
    from glob import has_magic

    from rmqctl.engine.files.paths import check_store
    from rmqctl.engine.settings.storeconfig import load_broker_conf

    try:
        if store.broker_conf is not None:
            load_broker_conf(store.broker_conf)
        root = store.root()
        if "://" not in root and not has_magic(root):
            check_store(Path(root))
    except click.UsageError as error:
        return error.format_message()
    except (BrokerConfError, StoreNotFound, NotAStore) as error:
        return error.template.format(**error.values)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None


def named(text: str) -> NamedStore:
    """The store that ``@name`` means.

    :raises NamedStoreUnknown: none has the name. :raises UserConfigError: the file is broken.
    """
    stores, name = named_stores(), text.removeprefix(SIGN)
    if name not in stores:
        raise NamedStoreUnknown(name=name, path=str(user_config()), known=_known(stores))
    return stores[name]


def _known(stores: dict[str, NamedStore]) -> str:
    names = [SIGN + name for name in sorted(stores)]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"has {', '.join(names[:5])}{more}" if names else "names none"


class Place(NamedTuple):
    """What a command works on."""

    root: Path
    broker_conf: str | None


def place_of(root: Path | str | None, broker_conf: str | None) -> Place:
    """The place of a command's own options; a text is a store's ``@name``.

    :raises UsageError: nothing says where the store is. :raises BrokerConfError: it cannot be read.
    """
    stores, conf = places_of([] if root is None else [root], broker_conf)
    return Place(Path(stores[0]), conf)


def places_of(
    roots: Sequence[Path | str], broker_conf: str | None, *, is_shared: bool = False
) -> tuple[list[str], str | None]:
    """The same for a command of several stores, which have one broker.conf among them.

    :param is_shared: a store that is not given by its name is read by the broker.conf of one that
        is.
    """
    found, files = [], dict[str | None, None]()
    for root in roots:
        if isinstance(root, str) and root.startswith(SIGN):
            store = named(root)
            found.append(store.root())
            files[store.broker_conf] = None
        else:
            found.append(str(root))
            if not is_shared:
                files[None] = None
    conf = broker_conf if is_typed("broker_conf") else None
    if conf is None and any(files):
        if len(files) > 1:
            raise click.UsageError(
                "the stores have different broker.conf files: give one for all with --broker-conf, "
                "or look at one after the other."
            )
        conf = next(iter(files))
    conf = conf or broker_conf
    return found or [str(root_of(conf))], conf


def is_typed(name: str) -> bool:
    """Whether an option stands on the command line, and not only in the environment."""
    context = click.get_current_context(silent=True)
    return (
        context is not None
        and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    )


def root_of(broker_conf: str | None) -> Path:
    """The store that a ``broker.conf`` names, for a command that is not told of one.

    :raises UsageError: it names none. :raises BrokerConfError: it cannot be read.
    """
    if broker_conf:
        return _named_by(broker_conf, "'--store' (RMQCTL_STORE saves the option)")
    raise click.UsageError(
        "Missing option '--store': the broker's storePathRootDir (RMQCTL_STORE saves the option), "
        "or --broker-conf with a file that names it."
    )


def _named_by(broker_conf: str, instead: str) -> Path:
    from rmqctl.engine.settings.storeconfig import load_broker_conf

    root = load_broker_conf(broker_conf).store_path_root_dir
    if root:
        return Path(root)
    raise click.UsageError(f"{broker_conf} has no storePathRootDir: give {instead}.")
