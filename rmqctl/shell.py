"""Words as a command line: what an error, a note or a finding tells somebody to type."""

from collections.abc import Sequence

#: Bytes that mean themselves inside ``$'…'``. Messages quote commands with backticks.
_PLAIN_BYTES = frozenset(range(0x20, 0x7F)) - frozenset(b"'\\`")


def shell_line(words: Sequence[str]) -> str:
    """Words as one command line, quoted for a shell: the shell gives the same words back.

    Words from a store may hold anything. What is not printable, and a backtick, is written as
    escapes that the shell undoes (``$'\\033'``), so that a terminal obeys nothing of it, and a
    message can quote the line.
    """
    return " ".join(map(_shell_word, words))


def _shell_word(word: str) -> str:
    import shlex

    if word.isprintable() and "`" not in word:
        return shlex.quote(word)
    data = word.encode("utf-8", "surrogateescape" if _from_system(word) else "surrogatepass")
    plain = (chr(byte) if byte in _PLAIN_BYTES else f"\\{byte:03o}" for byte in data)
    return f"$'{''.join(plain)}'"


def _from_system(word: str) -> bool:
    """Whether the lone surrogates in a text are bytes of an argument that are no UTF-8."""
    return all(0xDC80 <= ord(char) <= 0xDCFF for char in word if 0xD800 <= ord(char) <= 0xDFFF)
