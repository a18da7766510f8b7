"""Bodies: every compression of RocketMQ's, damaged ones, and bombs."""

from __future__ import annotations

import sys
import tracemalloc
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.engine.record.bodies import Body, decompress
from rmqctl.engine.record.status import BodyStatus
from rmqctl.installed import install_command
from tests.seeds import times

COMPRESSED = 1


def lz4_stream(body: bytes) -> bytes:
    """As ``LZ4FrameOutputStream`` writes: blocks of 4 MiB, no size in the header."""
    return bytes(lz4.frame.compress(body, block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=False))


def zstd_stream(body: bytes) -> bytes:
    """As ``ZstdOutputStream`` writes: no size in the header."""
    compressor = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return compressor.compress(body) + compressor.flush()


Encode = Callable[[bytes], bytes]
CODECS: dict[str, tuple[int, str, Encode]] = {
    "as 4.9.3": (COMPRESSED, "zlib", zlib.compress),
    "lz4": (COMPRESSED | 1 << 8, "lz4", lz4_stream),
    "zstd": (COMPRESSED | 2 << 8, "zstd", zstd_stream),
    "zstd with size": (COMPRESSED | 2 << 8, "zstd", zstandard.ZstdCompressor().compress),
    "zlib": (COMPRESSED | 3 << 8, "zlib", zlib.compress),
}
every_codec = pytest.mark.parametrize("name", CODECS)


@every_codec
@pytest.mark.parametrize("body", [b"x", b"body " * 50_000, bytes(range(256)) * 40, bytes(5 << 20)])
def test_a_body_comes_back(name: str, body: bytes) -> None:
    flag, compression, encode = CODECS[name]
    assert decompress(encode(body), flag) == Body(body, compression, BodyStatus.DECOMPRESSED)
    at_the_limit = decompress(encode(body), flag, len(body))
    assert at_the_limit.data == body
    above = decompress(encode(body), flag, len(body) - 1)
    assert (above.data, above.status) == (None, BodyStatus.OVER_LIMIT)
    assert "--decompress-limit" in above.reason


@pytest.mark.parametrize("sys_flag", [0, 4, 0x700])
def test_what_is_not_compressed_stays_as_it_is(sys_flag: int) -> None:
    stored = Body(b"plain", "none", BodyStatus.STORED)
    assert decompress(b"plain", sys_flag) == stored
    assert decompress(b"", COMPRESSED).status is BodyStatus.STORED


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_unknown_compressions_are_named(number: int) -> None:
    body = decompress(b"?", COMPRESSED | number << 8)
    assert (body.data, body.compression, body.status) == (
        None,
        f"type {number}",
        BodyStatus.NO_CODEC,
    )


@every_codec
def test_every_cut_is_damage(name: str) -> None:
    flag, compression, encode = CODECS[name]
    stored = encode(bytes(range(256)) * 3)
    for length in range(1, len(stored)):
        body = decompress(stored[:length], flag)
        assert (body.data, body.compression, body.status) == (
            None,
            compression,
            BodyStatus.DAMAGED,
        ), length
        assert body.reason


@every_codec
@settings(max_examples=times(150), deadline=None)
@given(data=st.data())
def test_no_bytes_raise(name: str, data: st.DataObject) -> None:
    flag, _, encode = CODECS[name]
    stored = bytearray(encode(b"some words and some more words " * 20))
    for _ in range(data.draw(st.integers(1, 4))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    body = decompress(bytes(stored), flag, 10_000)
    assert (body.data is None) is (body.status is not BodyStatus.DECOMPRESSED)
    assert len(body.data or b"") <= 10_000
    assert decompress(data.draw(st.binary(max_size=64)), flag, 1000).status in BodyStatus


@pytest.mark.parametrize("name", ["lz4", "zstd"])
def test_frames_may_follow_each_other(name: str) -> None:
    flag, _, encode = CODECS[name]
    assert decompress(encode(b"one ") + encode(b"two"), flag).data == b"one two"
    assert decompress(encode(b"one ") + b"junk", flag).status is BodyStatus.DAMAGED


@every_codec
def test_a_bomb_is_given_up_before_it_grows(name: str) -> None:
    flag, _, encode = CODECS[name]
    bomb = encode(bytes(64 << 20))
    tracemalloc.start()
    try:
        assert decompress(bomb, flag, 1 << 20).status is BodyStatus.OVER_LIMIT
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 1 << 20 < peak < 24 << 20


def test_a_zstd_frame_cannot_ask_for_memory() -> None:
    compressor = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=27)
    )
    stored = compressor.stream_reader(bytes(200 << 20)).read()
    flag = COMPRESSED | 2 << 8
    for frames in (stored, zstandard.ZstdCompressor().compress(b"small") + stored):
        body = decompress(frames, flag, 1 << 20)
        assert body.status is BodyStatus.OVER_LIMIT
        assert f"a window of {1 << 27} bytes, more than {8 << 20}" in body.reason
        assert "--decompress-limit" in body.reason
    assert decompress(stored[:-1], flag, 200 << 20).status is BodyStatus.DAMAGED
    assert decompress(stored, flag, 200 << 20).data == bytes(200 << 20)


@pytest.mark.parametrize(("name", "module"), [("lz4", "lz4.frame"), ("zstd", "zstandard")])
def test_a_missing_package_is_named(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag, compression, encode = CODECS[name]
    stored = encode(b"body")
    monkeypatch.setitem(sys.modules, module, None)
    body = decompress(stored, flag)
    assert (body.data, body.compression, body.status) == (None, compression, BodyStatus.NO_CODEC)
    assert install_command("codecs") in body.reason
