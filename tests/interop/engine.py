"""The real engine as a process, which is built once with Maven and driven by lines of JSON.

One Java process of a version serves many stores, one after the other. The engine itself is in
Maven's own cache; the driver is compiled into ``driver/*/target``, again when its sources change.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from rmqctl.engine.record.message import Host, MessageExtBrokerInner

DRIVER = Path(__file__).parent / "driver"
#: The versions that all tests are for, and the newest one, for some.
VERSIONS = ["4.9.3", "5.3.3"]
LATEST = "5.5.0"
#: Version → the driver's module.
MODULES = {"4.9.3": "engine4", "5.3.3": "engine5", LATEST: "engine55"}

Row = dict[str, Any]

_JAVA = [
    "java",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # for so short a run the better compiler does not pay
    # Nor does it to verify the byte code, all of which comes from known compilers.
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
    *("--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"),
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    # A machine whose disk is rather full shall not make the engine refuse messages, or clean up.
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
    "-Drocketmq.client.logUseSlf4j=true",
    # With TLS each server that listens would make an RSA key and a certificate: five seconds of
    # processor time for a broker and its name server. TLS is tested with clients of `serve`.
    "-Dtls.server.mode=disabled",
    # Else a consumer would look for its retry topic only after twenty seconds.
    "-Drocketmq.client.rebalance.waitInterval=1000",
]


class NotAvailable(Exception):
    """Java, Maven or the artefacts are missing; the text says which, in one line."""


class EngineError(Exception):
    """The driver could not do what it was asked to; the text is what Java said."""


def build() -> None:
    """Compiles the driver for :data:`VERSIONS`, unless that was done for the same sources.

    :raises NotAvailable: it cannot be built on this machine.
    """
    _build(DRIVER, [MODULES[version] for version in VERSIONS])


def build_latest() -> None:
    """:func:`build` for :data:`LATEST`."""
    module = MODULES[LATEST]
    _build(DRIVER / module, [module])


def _build(project: Path, modules: list[str]) -> None:
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise NotAvailable(f"the real engine needs {tool}, which is not on this machine")
    digest = hashlib.sha256()
    for path in sorted(DRIVER.rglob("*")):
        if path.suffix in (".java", ".xml") and "target" not in path.parts:
            digest.update(path.read_bytes())
    for module in modules:
        (DRIVER / module / "target").mkdir(exist_ok=True)
    stamp = DRIVER / modules[-1] / "target" / "built-from"
    with stamp.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == digest.hexdigest() and _has_jars(modules):
            return
        stamp.unlink(missing_ok=True)
        command = ["mvn", "-B", "-q", "-f", str(project), "compile"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            said = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
            if any("COMPILATION ERROR" in line for line in said):
                raise EngineError("\n".join(said))
            first = said[0].removeprefix("[ERROR] ") if said else f"exit code {done.returncode}"
            raise NotAvailable(f"Maven could not build the engine's driver: {first}")
        stamp.write_text(digest.hexdigest())


def _has_jars(modules: list[str]) -> bool:
    """Whether the libraries that the last build used are still in Maven's cache."""
    return all(Path(jar).exists() for module in modules for jar in _jars(module))


def _jars(module: str) -> list[str]:
    try:
        return (DRIVER / module / "target" / "classpath.txt").read_text().strip().split(":")
    except FileNotFoundError:
        return [""]


class Engine:
    """A Java process with one version of the engine."""

    def __init__(self, version: str, log: Path) -> None:
        module = MODULES[version]
        self.version = version
        self._log = log
        classpath = ":".join([str(DRIVER / module / "target" / "classes"), *_jars(module)])
        # What the engine writes into the home directory goes beside the log instead.
        own = [f"-Dinterop.engine={module[-1]}", f"-Duser.home={log.parent}"]
        command = [*_JAVA, *own, "-cp", classpath, "interop.Main"]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, what: str, **values: Any) -> Any:
        """Sends one request, and gives its answer.

        :raises EngineError: it failed, or the process has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = json.dumps({"do": what, **values})
        try:
            self._process.stdin.write(request.encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            said = self._log.read_text("utf-8", "replace")[-2000:]
            raise EngineError(f"the engine's process has ended:\n{said}")
        answer = json.loads(line)
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer["ok"]

    def kill(self) -> None:
        """Ends the process with SIGKILL, so that the engine flushes and closes nothing."""
        self._process.kill()
        self._process.communicate()

    def close(self) -> None:
        self._process.communicate()

    def open(self, root: Path, settings: Row, *, delivers: bool = False) -> EngineStore:
        return EngineStore(self, root, settings, delivers)


class EngineStore:
    """A store on which the engine was started. ``is_open`` is false when it did not start;
    ``is_loaded`` then tells whether it had read the store, and ``why`` what stopped it after that,
    such as a lock that another process holds.

    :param delivers: 4.9.3 delivers delayed messages that are due, beginning a second after the
        start.
    """

    def __init__(self, engine: Engine, root: Path, settings: Row, delivers: bool) -> None:
        self.engine = engine
        self.root = root
        self.name = str(root)
        answer = engine.ask(
            "open", store=self.name, root=str(root), config=settings, delivers=delivers
        )
        self.is_loaded: bool = answer["loaded"]
        self.is_open: bool = answer["started"]
        self.why: str = answer.get("why", "")

    def put(self, messages: Iterable[MessageExtBrokerInner], batch: bool = False) -> list[Row]:
        rows = [message_row(message) for message in messages]
        results: list[Row] = self.engine.ask("put", store=self.name, messages=rows, batch=batch)
        return results

    def dump(self) -> dict[str, list[Row]]:
        """What the engine says of the store: rows as in the golden data, by their kind."""
        to = self.root.with_name(self.root.name + ".dump.ndjson")
        self.engine.ask("dump", store=self.name, to=str(to))
        rows: dict[str, list[Row]] = {}
        with to.open(encoding="utf-8") as lines:
            for line in lines:
                row: Row = json.loads(line)
                rows.setdefault(row["kind"], []).append(row)
        to.unlink()
        return rows

    def ends(self) -> dict[str, list[Row]]:
        """The rows of :meth:`dump` that tell where log and queues begin and end; the engine reads
        no message for them."""
        rows: dict[str, list[Row]] = {}
        for row in self.engine.ask("ends", store=self.name):
            rows.setdefault(row["kind"], []).append(row)
        return rows

    def look(self, offset: int) -> Row | None:
        """The row of the message at a physical offset (``lookMessageByOffset``), if there is
        one."""
        row: Row | None = self.engine.ask("look", store=self.name, offset=offset)
        return row

    def query(self, topic: str, key: str) -> Row:
        """The engine's answer to a query by key, as a row."""
        row: Row = self.engine.ask("query", store=self.name, topic=topic, key=key)
        return row

    def settle(self) -> None:
        """Waits until the engine has dispatched its whole log."""
        self.engine.ask("settle", store=self.name)

    def compress(self, how: str, body: bytes) -> bytes:
        """Compresses a body as this version's client does it; ``how`` is ZLIB, LZ4 or ZSTD."""
        text = b64encode(body).decode()
        packed: str = self.engine.ask("compress", store=self.name, how=how, body=text)
        return b64decode(packed)

    def shutdown(self) -> None:
        self.engine.ask("shutdown", store=self.name)


def host_text(host: Host) -> str:
    """A host as ``address|port``, as it is written in the golden rows."""
    address, port = host
    return f"{ip_address(address)}|{port}"


def message_row(message: MessageExtBrokerInner) -> Row:
    """A message as a row for the driver."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "body": b64encode(message.body).decode(),
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "properties": message.properties,
        "bornTimestamp": message.born_timestamp,
        "bornHost": host_text(message.born_host),
        "storeHost": host_text(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
    }
