"""``broker.conf`` as ``java.util.Properties#load`` reads it; the expected entries are Java's."""

from __future__ import annotations

import pytest

from rmqctl.engine.settings.properties import properties
from rmqctl.engine.settings.storeconfig import load_broker_conf, parse_broker_conf
from rmqctl.errors import BrokerConfError

CASES = {
    "a=1": [("a", "1")],
    "a = 1\r\nb: 2\rc 3\n": [("a", "1"), ("b", "2"), ("c", "3")],
    " \t\fa\t=\f 1 ": [("a", "1 ")],
    "a==1\nb = = 1\nc : =": [("a", "=1"), ("b", "= 1"), ("c", "=")],
    "# a=1\n! b=2\n  #c=3\nd=#4": [("d", "#4")],
    "a=1,\\\n   2,\\\r\n\t3\nb=4": [("a", "1,2,3"), ("b", "4")],
    "a=1\\\\\nb=2": [("a", "1\\"), ("b", "2")],
    "a=1\\\n#b=2": [("a", "1#b=2")],
    "#a\\\nb=2": [("b", "2")],
    "a=1\\\n\nb=2": [("a", "1"), ("b", "2")],
    "\\\n  a=1": [("a", "1")],
    "a\\ b\\:c\\=d=e\\=f": [("a b:c=d", "e=f")],
    "a=\\t\\n\\r\\f\\z\\\\": [("a", "\t\n\r\fz\\")],
    "a=\\u0041\\ud83d\\ude00\\u00e9": [("a", "A\U0001f600é")],
    "a=\\ud83d": [("a", "\ud83d")],
    "a": [("a", "")],
    "a\\": [("a", "")],
    "=b": [("", "b")],
    "a=1\x0bb\x85c\u2028d": [("a", "1\x0bb\x85c\u2028d")],
    "a=1\na=2": [("a", "1"), ("a", "2")],
    "": [],
    " \n\t\n": [],
}


@pytest.mark.parametrize("text", CASES, ids=repr)
def test_entries(text: str) -> None:
    assert [(entry.name, entry.value) for entry in properties(text)] == CASES[text]


@pytest.mark.parametrize("text", ["\\u", "a=\\u12", "a=\\u12g4", "a=\\u 123", "\\u00\\u0041=1"])
def test_escapes_that_end_a_broker(text: str) -> None:
    with pytest.raises(BrokerConfError, match=r"line 2: .*malformed"):
        list(properties("x=1\n" + text))


def test_lines_are_those_of_the_file() -> None:
    assert [entry.line for entry in properties("#\na=1\\\n\\\n2\r\n\rb=2")] == [2, 6]


def test_values_as_a_broker_takes_them() -> None:
    config = parse_broker_conf(
        "mappedFileSizeCommitLog 2048\nmaxIndexNum:\\\n  200\ndeleteWhen=04;\\u0031\\u0036\n"
        "storePathCommitLog=/a\\ b,\\\n   /c\n"
    )
    assert config.mapped_file_size_commit_log == 2048 and config.max_index_num == 200
    assert config.delete_when == "04;16" and config.store_path_commit_log == "/a b,/c"


@pytest.mark.parametrize("line", ["maxIndexNum=200 ", "enableLmq=true\t"])
def test_blanks_behind_a_number_are_told(line: str) -> None:
    """``Integer#parseInt`` throws, and the broker goes by its default without a word."""
    with pytest.raises(BrokerConfError, match=r"line 1: .*ends in blanks"):
        parse_broker_conf(line)


def test_bytes_are_characters(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A comment in GBK, a name in UTF-8."""
    path = tmp_path_factory.mktemp("conf") / "broker.conf"
    path.write_bytes("# 存储\n".encode("gbk") + "brokerName=é\n".encode())
    assert load_broker_conf(path).broker_name == "Ã©"
    path.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(BrokerConfError, match="more than"):
        load_broker_conf(path)
