"""A master that asks who comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.errors import NotAFile
from rmqctl.replicate.credentials import load_credentials
from rmqctl.serve.errors import AccountsUnreadable
from rmqctl.serve.state.accounts import load_accounts
from tests import processes
from tests.test_replicate.live import live
from tests.test_replicate.test_following import LOCAL, same

ACCOUNTS = """
accounts:
- accessKey: reader
  secretKey: of-orders
  defaultTopicPerm: SUB
- accessKey: keeper
  secretKey: of-the-keys
  admin: true
"""
TOOLS = "accessKey: keeper\nsecretKey: of-the-keys\n"


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("text", [ACCOUNTS, TOOLS], ids=["plain_acl.yml", "tools.yml"])
def test_a_master_with_accounts_is_followed(tmp_path: Path, text: str) -> None:
    root, copy = tmp_path / "master", tmp_path / "copy"
    accounts = load_accounts(written(tmp_path / "accounts.yml", ACCOUNTS))
    own = written(tmp_path / "own.yml", text)
    with live(root, accounts=accounts) as master:
        master.put(20)
        line = ["replicate", f"{LOCAL}:{master.ha_port}", "--broker", f"{LOCAL}:{master.port}"]
        line += ["--to", str(copy), "--until-caught-up", "--verify"]
        refused = processes.run("rmqctl", *line)
        assert refused.returncode == 5 and not copy.exists()
        assert "AclException: No accessKey" in refused.stderr and "--acl-file" in refused.stderr
        for _ in range(2):
            done = processes.run("rmqctl", *line, "--acl-file", str(own))
            assert done.returncode == 0, done.stderr
            # The second time there is a copy, and a record to compare.
            assert (copy / "config/topics.json").exists()
        if text == ACCOUNTS:
            line += ["--acl-file", str(own), "--access-key", "reader"]
            stranger = processes.run("rmqctl", *line)
            # That is nobody's copy, the master would say, were it not its answer to anybody.
            assert stranger.returncode == 5 and "AclException" in stranger.stderr
    same(root, copy)


def test_whose_keys_are_taken(tmp_path: Path) -> None:
    path = written(tmp_path / "one.yml", ACCOUNTS)
    assert load_credentials(path, None).access_key == "keeper"
    assert load_credentials(path, "reader").secret_key == b"of-orders"
    assert "of-orders" not in repr(load_credentials(path, "reader"))
    written(path, "accounts:\n- accessKey: single\n  secretKey: of-orders\n")
    assert load_credentials(path, None).access_key == "single"
    written(path, TOOLS + "securityToken: some\n")
    assert load_credentials(path, None).security_token == "some"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (ACCOUNTS.replace("true", "false"), "access-key says which"),
        (TOOLS.replace("keeper", "other"), "it has no account 'keeper'"),
        ("accounts: []\n", "it has no account"),
        ("accessKey: keeper\nsecretKey: 1.5\n", "put them into quotes"),
        ("accessKey: some\n", "to be texts"),
        ("a: [", "no YAML at line 1, column 5"),
        ("3\n", "no list of accounts"),
    ],
)
def test_keys_that_are_none(tmp_path: Path, text: str, why: str) -> None:
    access_key = "keeper" if "other" in text else None
    with pytest.raises(AccountsUnreadable, match=rf"{why}.*\. Give mqadmin's tools\.yml"):
        load_credentials(written(tmp_path / "keys.yml", text), access_key)


@pytest.mark.parametrize(
    "secret",
    ["*hidden", "@hidden", "!hidden", '"hidden', "a: hidden", "!!int hidden", "!!bool hidden"],
)
def test_what_is_wrong_with_a_secret_does_not_show_it(tmp_path: Path, secret: str) -> None:
    path = written(tmp_path / "keys.yml", f"accessKey: keeper\nsecretKey: {secret}\n")
    with pytest.raises(AccountsUnreadable) as caught:
        load_credentials(path, None)
    assert "hidden" not in str(caught.value) and "no YAML" in str(caught.value)


def test_keys_of_digits_are_texts(tmp_path: Path) -> None:
    """As the files have them that RocketMQ comes with."""
    tools = written(tmp_path / "tools.yml", "accessKey: rocketmq2\nsecretKey: 12345678\n")
    assert load_credentials(tools, None).secret_key == b"12345678"
    text = "accounts:\n- accessKey: rocketmq2\n  secretKey: 12345678\n  admin: true\n"
    assert load_credentials(written(tools, text), None).secret_key == b"12345678"
    [account] = load_accounts(tools)
    assert account.secret_key == b"12345678"


def test_a_key_needs_its_file(tmp_path: Path) -> None:
    line = ["replicate", f"{LOCAL}:2", "--to", str(tmp_path / "copy"), "--access-key", "keeper"]
    refused = processes.run("rmqctl", *line)
    assert refused.returncode == 2 and "--acl-file" in refused.stderr


def test_nobody_is_told_to_move_a_directory_that_was_named_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(NotAFile, match="not a regular file") as told:
        load_credentials(tmp_path, None)
    assert str(told.value).endswith("(`ls -ld`): a file belongs there.")
