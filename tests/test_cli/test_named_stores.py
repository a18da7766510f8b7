"""Stores by name, and which store and ``broker.conf`` a command goes by."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.test_cli.conftest import BROKER_CONF, Cli

NDJSON = ("--format", "ndjson")
INDEX = ("index", "info", *NDJSON)


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file of names, which does not exist yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    (tmp_path / "xdg" / "rmqctl").mkdir(parents=True)
    return tmp_path / "xdg" / "rmqctl" / "config.toml"


@pytest.fixture
def conf(store: Path) -> Path:
    path = store.parent / "broker.conf"
    path.write_text(f"{BROKER_CONF}storePathRootDir={store}\n")
    return path


def root(cli: Cli, *line: str | Path) -> str:
    done = cli("info", *NDJSON, *line)
    assert done.code == 0, done.err
    return str(done.rows[0]["path"])


def test_a_name_means_store_and_broker_conf(
    cli: Cli, store: Path, conf: Path, names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names.write_text(
        f'\ufeff[stores.both]\nstore = "{store}"\nbroker_conf = "{conf}"\n'
        f'[stores.conf]\nbroker_conf = "{conf}"\n[stores."只读"]\nstore = "{store}"\n'
    )
    for name in ("@both", "@conf"):
        assert root(cli, "--store", name) == str(store)
        assert cli(*INDEX, "--store", name).rows[0]["max_index_num"] == 200
        assert cli("--store", name, *INDEX) == cli(*INDEX, "--store", name)
    assert root(cli, "--store", "@只读") == str(store)
    monkeypatch.setenv("RMQCTL_STORE", "@both")
    assert cli(*INDEX).rows[0]["max_index_num"] == 200
    assert cli("put", "--topic", "t", "--body", "x").code == 0
    assert cli("stats", *NDJSON).rows[-1]["messages"] == 61
    monkeypatch.setenv("RMQCTL_STORE", "@conf:@both")  # Several, where a command takes them.
    assert cli("stats", *NDJSON).rows[-1]["messages"] == 61, "the same one twice"


def test_the_order_in_which_one_is_asked(
    cli: Cli, store: Path, conf: Path, names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, typed = store.parent / "other", store.parent / "typed"
    for place in (other, typed):
        shutil.copytree(store, place)
    wrong = store.parent / "wrong.conf"
    wrong.write_text(f"storePathRootDir={store}\nmaxIndexNum=1\n")
    names.write_text(f'[stores.o]\nstore = "{other}"\nbroker_conf = "{conf}"\n')
    monkeypatch.setenv("RMQCTL_BROKER_CONF", str(conf))
    assert root(cli) == str(store)
    monkeypatch.setenv("RMQCTL_STORE", "@o")
    assert root(cli) == str(other)
    assert root(cli, "--store", typed) == str(typed)
    assert root(cli, "--broker-conf", wrong) == str(other), "a copy is read by the original's"
    # The broker.conf: typed before the name's before the environment's.
    monkeypatch.setenv("RMQCTL_BROKER_CONF", str(wrong))
    assert cli(*INDEX).rows[0]["max_index_num"] == 200
    assert cli(*INDEX, "--broker-conf", wrong).code == 5
    assert cli(*INDEX, "--store", typed).code == 5


def test_stores_of_one_command_have_one_broker_conf(
    cli: Cli, store: Path, conf: Path, names: Path
) -> None:
    names.write_text(
        f'[stores.a]\nstore = "{store}"\nbroker_conf = "{conf}"\n[stores.b]\nstore = "{store}"\n'
    )
    stores = ("--store", "@a", "--store", "@b")
    done = cli("stats", *stores)
    assert done.code == 2 and "different broker.conf files" in done.err
    assert "--broker-conf" in done.err
    assert cli("stats", *stores, "--broker-conf", conf, *NDJSON).code == 0


def test_diff_reads_both_stores_by_the_broker_conf_of_the_name(
    cli: Cli, store: Path, conf: Path, names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --store it was passed over, and the log that it names was not compared."""
    other = Path(shutil.copytree(store, store.parent / "other"))
    elsewhere = store.parent / "elsewhere"
    (store / "commitlog").rename(elsewhere)
    conf.write_text(f"{conf.read_text()}storePathCommitLog={elsewhere}\n")
    names.write_text(f'[stores.a]\nstore = "{store}"\nbroker_conf = "{conf}"\n')
    size = None
    for line in (("--store", "@a", other), ("@a", other), (other, "@a")):
        done = cli("diff", *line, *NDJSON)
        assert (done.code, done.err) == (0, ""), line
        assert done.rows[-1]["compared_bytes"] == (size := size or done.rows[-1]["compared_bytes"])
    with monkeypatch.context() as patch:
        patch.setenv("RMQCTL_STORE", "@a")
        assert cli("diff", other).code == 0
    # A list of directories counts for any store, but for one store only.
    conf.write_text(conf.read_text().replace(str(elsewhere), f"{elsewhere},{other}/none"))
    newest = max((other / "commitlog").iterdir())
    newest.write_bytes(newest.read_bytes().replace(b"body 5", b"body 9"))
    for line in (("@a", other), (other, "@a")):
        done = cli("diff", *line, *NDJSON)
        assert done.code == 1 and done.rows[-1]["commitlog"] == 1, line
    two = names.read_text() + f'[stores.b]\nstore = "{other}"\nbroker_conf = "{conf}x"\n'
    names.write_text(two)
    assert "different broker.conf files" in cli("diff", "@a", "@b").err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stores = 1", "`stores` is no table"),
        ("[stores]\na = 1", "[stores.a] is no table"),
        ("[stores.a]", "names neither store nor broker_conf"),
        ("[stores.a]\nstor = '/x'", "unknown entry 'stor'"),
        ("[store.a]\nstore = '/x'", "unknown entry 'store'"),
        ("[stores.a]\nstore = 7", "store of [stores.a] is no path"),
        ("[stores.a]\nstore = ''", "store of [stores.a] is no path"),
        ("[stores.a]\nstore = 'here'", "depends on where one stands"),
        ("[stores.a\n", "it is no TOML"),
        ("\xff", "it is no TOML"),
        ("a = " + "[" * 100_000, "it is no TOML"),
        ("#" * (1 << 21), "more than"),
    ],
    ids=lambda value: value[:20],
)
def test_a_file_that_is_none_is_told(text: str, told: str, cli: Cli, names: Path) -> None:
    names.write_bytes(text.encode("latin-1"))
    for line in (("info", "--store", "@a"), ("config", "stores")):
        done = cli(*line)
        assert done.code == 2 and done.out == ""
        assert told in done.err and "config.toml" in done.err and "[stores.prod-a]" in done.err


def test_a_name_that_nobody_has_and_one_that_names_nothing(
    cli: Cli, store: Path, names: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = cli("info", "--store", "@a")
    assert done.code == 2 and "names none" in done.err and "[stores.a]" in done.err
    empty = tmp_path / "empty.conf"
    empty.write_text(BROKER_CONF)
    names.write_text(f'[stores.a]\nbroker_conf = "{empty}"\n[stores.b]\nstore = "{tmp_path}/b"\n')
    done = cli("info", "--store", "@a")
    assert done.code == 2 and "has no storePathRootDir" in done.err and "`store` for @a" in done.err
    assert cli("info", "--store", "@b").code == 3
    assert "has @a, @b" in cli("info", "--store", "@c").err
    # A directory may be called so, too.
    shutil.copytree(store, tmp_path / "@a")
    monkeypatch.chdir(tmp_path)
    assert root(cli, "--store", "./@a") == "@a"
    assert cli("stats", "--store", "./@a", *NDJSON).rows[-1]["messages"] == 60


def test_names_are_listed_with_what_is_wrong(
    cli: Cli, store: Path, conf: Path, names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = cli("config", "stores", *NDJSON)
    assert done.code == 0 and done.rows[-1] == {
        "type": "summary", "path": str(names), "stores": 0, "problems": 0
    }  # fmt: skip
    assert "names no store" in done.err and "[stores.prod-a]" in done.err
    names.write_text(
        f'[stores.good]\nbroker_conf = "{conf}"\n'
        '[stores.many]\nstore = "/data/*/store"\n[stores.far]\nstore = "s3://bucket/store"\n'
        f'[stores.gone]\nstore = "{store}/absent"\n[stores.home]\nstore = "~/absent"\n'
        f'[stores.noconf]\nstore = "{store}"\nbroker_conf = "{store}/absent.conf"\n'
        f'[stores."\\u202eevil"]\nstore = "{store}"\n'
    )
    monkeypatch.setenv("HOME", "/nowhere")
    done = cli("config", "stores", *NDJSON)
    rows = {row["name"]: row for row in done.rows[:-1]}
    assert done.code == 1 and done.rows[-1]["problems"] == 3
    assert rows["good"] == {
        "type": "named_store", "name": "good", "store": str(store), "broker_conf": str(conf),
        "problem": None,
    }  # fmt: skip
    assert rows["home"]["store"] == "/nowhere/absent"
    assert "no directory" in rows["gone"]["problem"] and "No such" in rows["noconf"]["problem"]
    assert rows["many"]["problem"] is rows["far"]["problem"] is None
    assert "\u202e" not in cli("config", "stores").out


def test_a_relative_xdg_directory_is_not_one(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    done = cli("config", "stores", *NDJSON)
    assert done.rows[-1]["path"] == str(tmp_path / ".config" / "rmqctl" / "config.toml")
