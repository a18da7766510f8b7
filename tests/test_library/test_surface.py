"""What ``rmqctl`` itself offers: exactly this, typed, and loaded when it is asked for."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import rmqctl
from rmqctl.reference.api import SECTIONS

ROOT = Path(rmqctl.__file__).parents[1]
#: Every public name, and those of each class. A change here is one that users see.
SURFACE = {
    "DamageWarning": "",
    "Message": "topic queue_id queue_offset physical_offset size msg_id properties keys unique_key "
    "tags store_timestamp store_time born_timestamp born_time born_host store_host "
    "reconsume_times body stored_body status to_dict",
    "Messages": "between store to_arrow",
    "Queue": "between store to_arrow topic queue_id min_offset max_offset",
    "RmqctlError": "template step command_step exit_code for_command_line",
    "Store": "between store to_arrow path writable closed engine check_open topics topic queues "
    "message find verify put put_all flush close",
    "Topic": "between store to_arrow name queues",
    "__version__": "",
    "errors": "",
    "open": "",
}


def public_names(one: type) -> set[str]:
    own = {name for name in dir(one) if not name.startswith("_")}
    return own - {"args", "with_traceback", "add_note"}


def test_the_surface_is_this() -> None:
    assert sorted(SURFACE) == rmqctl.__all__
    assert set(rmqctl.__all__) <= set(dir(rmqctl))
    for name in rmqctl.__all__:
        found = getattr(rmqctl, name)
        if inspect.isclass(found):
            assert public_names(found) == set(SURFACE[name].split()), name


def test_every_name_is_described() -> None:
    described = {name for names in SECTIONS[0].names.values() for name in names}
    assert described == set(rmqctl.__all__) - {"__version__", "errors"}
    for name in rmqctl.__all__:
        assert name == "__version__" or inspect.getdoc(getattr(rmqctl, name))


def test_every_function_is_typed() -> None:
    assert (Path(rmqctl.__file__).parent / "py.typed").exists()
    untyped = []
    for name in rmqctl.__all__:
        found: Any = getattr(rmqctl, name)
        functions = [found] if inspect.isfunction(found) else []
        if inspect.isclass(found) and found.__module__.startswith("rmqctl.library"):
            for each in vars(found).values():
                each = each.fget if isinstance(each, property) else each
                functions += [each] if inspect.isfunction(each) else []
        for function in functions:
            parameters = [each for each in inspect.signature(function).parameters if each != "self"]
            annotated = set(function.__annotations__)
            if not {*parameters, "return"} - {"return"} <= annotated or "return" not in annotated:
                untyped.append(function.__qualname__)
    assert untyped == []
    assert get_type_hints(rmqctl.open)["return"] is rmqctl.Store


def test_a_name_that_is_none() -> None:
    with pytest.raises(AttributeError, match="module 'rmqctl' has no attribute 'opne'"):
        getattr(rmqctl, "op" + "ne")


def loaded_by(code: str) -> set[str]:
    code = f"import sys\nbefore = set(sys.modules)\n{code}\nloaded = set(sys.modules) - before\n"
    code += "import json\nprint(json.dumps(sorted(loaded)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return set(found)


def test_importing_it_loads_nothing_else() -> None:
    assert loaded_by("import rmqctl\nrmqctl.__version__") == {"rmqctl"}


def test_reading_a_message_loads_no_heavy_package(golden: Any) -> None:
    code = f"import rmqctl\nwith rmqctl.open({str(golden('basic'))!r}) as store:\n"
    code += "    [m.body for m in store.topic('TopicA').queues[0][:3]]"
    loaded = loaded_by(code)
    heavy = {"numpy", "construct", "orjson", "rich", "click", "pyspark", "pyarrow", "pandas"}
    assert not {name.split(".")[0] for name in loaded} & heavy
    assert not [name for name in loaded if name.startswith(("rmqctl.cli", "rmqctl.spark"))]
