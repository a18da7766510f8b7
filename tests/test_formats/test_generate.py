"""The generated files are up to date, and `--check` says so when they are not."""

from pathlib import Path

import pytest

from formats import generate
from formats.layouts import RECORD_PREFIX, TAIL


def test_generated_files_are_up_to_date() -> None:
    stale = [path.name for path in generate.stale_files()]
    assert stale == [], "run python -m formats.generate"


def test_check_passes_on_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    assert "wrote formats/layouts.py" in capsys.readouterr().out


def test_check_fails_with_a_sentence_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    generate.main([])
    stale = tmp_path / "formats" / "layouts.py"
    stale.write_text("old")
    capsys.readouterr()
    assert generate.main(["--check"]) == 1
    output = capsys.readouterr()
    assert output.err == "formats/layouts.py is out of date: run python -m formats.generate\n"
    assert (output.out, stale.read_text()) == ("", "old")


def test_a_page_nobody_generates_does_not_stay() -> None:
    folder = generate.ROOT / "docs" / "reference" / "formats"
    assert {path.name for path in folder.iterdir()} == {
        path.name for path in generate.generated_files() if path.parent == folder
    }


@pytest.mark.parametrize(
    ("flags", "store_host"),
    [(0, 64), (16, 76), (32, 64), (48, 76)],
)
def test_the_record_page_says_where_ipv6_moves_a_field(flags: int, store_host: int) -> None:
    page = generate.generated_files()[
        generate.ROOT / "docs" / "reference" / "formats" / "record.md"
    ]
    assert "| 64 + b | 4 or 16 | bytes | `store_address` |" in page
    offsets = {field.name: field.offset for field in RECORD_PREFIX[flags].fields}
    assert offsets["store_address"] == store_host


def test_the_kernel_reads_what_the_schemas_say() -> None:
    text = generate.generated_files()[generate.ROOT / "rmqctl" / "kernel" / "src" / "layouts.rs"]
    for layout in RECORD_PREFIX.values():
        places = [f"size: {layout.size}", *(f"{f.name}: {f.offset}" for f in layout.fields)]
        assert "".join(f"        {place},\n" for place in places) in text
    assert text.count("magic_code: 0x") == len(TAIL)
