"""Runs command lines one after the other; run as a module, with the lines as JSON.

For places where a command may end its process: what came before is told all the same.
"""

from __future__ import annotations

import io
import json
import os
import sys

from rmqctl.cli.main import run


def main() -> None:
    for line in json.loads(sys.argv[1]):
        texts = [io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2)]
        sys.stdout, sys.stderr = texts
        code = run(line)
        done = []
        for text in texts:
            text.flush()
            done.append(text.buffer.getvalue().decode())
        os.write(1, (json.dumps([code, *done]) + "\n").encode())


if __name__ == "__main__":
    main()
