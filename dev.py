"""Set rmqctl up and run it, from a fresh clone, with nothing but Python.

    python3 dev.py demo [ARGS]    install rmqctl into .venv and run `rmqctl demo`
    python3 dev.py test [ARGS]    install the development tools too, and run every check;
                                  ARGS go to pytest (paths count from the project's directory)
    python3 dev.py docs           install what makes the documentation a site, and make it in
                                  build/site; a link that leads nowhere fails it
    python3 dev.py zipapp [REQ]   make one file, build/rmqctl-….pyz, that runs without pip or .venv,
                                  and run it; REQ is what pip puts in, the project by default

The first run creates .venv beside this file; later runs reuse it until pyproject.toml or the
compiled kernel's sources change. Where cargo is found (PATH, ~/.cargo/bin), the kernel is built and
its own tests run, too; elsewhere rmqctl runs without it, slower.
The exit code is that of the first step that failed.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

# This file is run by whatever `python3` is. It keeps to syntax that Python 3.6 can parse, and asks
# before the first definition, so that an old one gets a sentence and not a traceback.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(
        "dev.py: rmqctl needs Python 3.11 or newer; "
        f"{sys.executable} is {sys.version.split()[0]}.\n"
        "Next: install a newer Python and name it, for example: python3.12 dev.py demo"
    )

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "rmqctl-dev-stamp"
KERNEL = ROOT / "rmqctl" / "kernel"

#: What .venv may hold: the project, its tools, and what makes the documentation and the file.
SETS = (".", ".[dev]", ".[dev,docs,zipapp]")

CHECKS = {
    "ruff check": ["-m", "ruff", "check", "."],
    "ruff format": ["-m", "ruff", "format", "--check", "."],
    "mypy": ["-m", "mypy"],
    "generated files": ["-m", "rmqctl.reference", "--check"],
    # loadgroup: what shares a session of Spark is run by one process, as are the tests of an
    # engine. How many processes "auto" is, and which tests come first, tests/conftest.py says.
    "pytest": ["-m", "pytest", "-n", "auto", "--dist", "loadgroup", "--no-loadscope-reorder"],
}


def main(arguments: list[str]) -> int:
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if command == "demo":
        return demo(rest)
    if command == "test":
        return test(rest)
    if command == "docs":
        return docs(rest)
    if command == "zipapp":
        return zipapp(rest)
    asked = command in ("-h", "--help")
    print(__doc__.strip(), file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


def demo(arguments: list[str]) -> int:
    set_up(".")
    return run([VENV / "bin" / "rmqctl", "demo", *arguments])


def test(pytest_arguments: list[str]) -> int:
    set_up(".[dev]")
    checks: dict[str, list[str | Path]] = {
        name: [PYTHON, *command] for name, command in CHECKS.items()
    }
    checks["pytest"] += pytest_arguments
    for name, command in (kernel_checks() | checks).items():
        say(name)
        code = run(command)
        if code:
            say(f"{name} failed (exit code {code}); the steps after it did not run")
            return code
    say("all checks passed")
    return 0


def docs(arguments: list[str]) -> int:
    set_up(SETS[-1])
    code = run([PYTHON, ROOT / "docs" / "build.py", *arguments])
    if code == 0:
        say(f"the documentation is {ROOT / 'build' / 'site' / 'index.html'}")
    return code


def zipapp(requirements: list[str]) -> int:
    """numpy and others are compiled: the file is for this version of Python and this kind of
    machine, unpacks itself into ~/.shiv when it is first run, and says so where it cannot run."""
    set_up(SETS[-1])
    python, platform = f"{sys.version_info[0]}.{sys.version_info[1]}", sysconfig.get_platform()
    made = ROOT / "build" / f"rmqctl-{version()}-py{python.replace('.', '')}-{platform}.pyz"
    made.parent.mkdir(exist_ok=True)
    preamble = made.with_suffix(".py")
    preamble.write_text(PREAMBLE.format(python=python, platform=platform))
    shiv = [VENV / "bin" / "shiv", "--console-script", "rmqctl", "--output-file", made]
    shiv += ["--python", f"/usr/bin/env python{python}", "--preamble", preamble, "--compressed"]
    code = run([*shiv, "--reproducible", *(requirements or [".[codecs]"]), "--quiet"])
    preamble.unlink()
    for arguments in (["--version", "-v"], ["demo"]) if code == 0 else ():
        code = code or run_alone([made, *arguments])
    if code == 0:
        size = made.stat().st_size / (1 << 20)
        say(f"{made} ({size:.0f} MiB) needs Python {python} on {platform}, and has run here")
    return code


#: What the single file does before anything is imported that another Python would not load.
PREAMBLE = """\
import sys
import sysconfig

python, platform = "{python}", "{platform}"
here = "%d.%d" % sys.version_info[:2]
if here != python or sysconfig.get_platform() != platform:
    sys.exit(
        "rmqctl: this file is for Python " + python + " on " + platform + ", and this is Python "
        + here + " on " + sysconfig.get_platform() + ".\\nNext: run it with python" + python
        + ", or take the file for this one."
    )
"""


def version() -> str:
    import tomllib

    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def run_alone(command: list[str | Path]) -> int:
    """Run the single file as on a machine that has nothing but Python; what it says is shown when
    it fails."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "TMPDIR": home, "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            [os.path.realpath(PYTHON), "-I", *command],
            cwd=home,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    if done.returncode:
        print(done.stdout, end="", file=sys.stderr)
    return done.returncode


def kernel_checks() -> dict[str, list[str | Path]]:
    """What cargo checks of the compiled kernel: nothing where it was not built."""
    cargo = find_cargo()
    if cargo is None or not (KERNEL / "_kernel.abi3.so").exists():
        return {}
    # What the build has fetched is all that is needed: no registry can fail these.
    where = ["--quiet", "--offline", "--locked", "--manifest-path", KERNEL / "Cargo.toml"]
    where += ["--target-dir", ROOT / "build" / "kernel"]
    checks = {"cargo test": [cargo, "test", *where, "--no-default-features", "--lib"]}
    if subprocess.run([cargo, "clippy", "--version"], env=ENV, capture_output=True).returncode == 0:
        checks["cargo clippy"] = [cargo, "clippy", *where, "--", "--deny", "warnings"]
    return checks


def find_cargo() -> str | None:
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    return shutil.which("cargo") or shutil.which("cargo", path=str(home / "bin"))


def set_up(requirement: str) -> None:
    """Make .venv hold `requirement`, at the cost of one small process when it already does."""
    usable = is_usable()
    # What holds more does as well.
    enough = [stamp(one) for one in dict.fromkeys([requirement, *SETS]) if holds(one, requirement)]
    if usable and STAMP.is_file() and STAMP.read_text() in enough:
        return
    if not usable:
        create_venv()
    STAMP.unlink(missing_ok=True)  # an install that is cut short must not look done
    say(f"installing {requirement} into {VENV} (the first time takes a minute)")
    must_succeed(
        [PYTHON, "-m", "pip", "install", "--quiet", "--editable", requirement],
        "installing failed; pip's own words are above",
        "check that this machine reaches a package index (pip's settings: PIP_INDEX_URL, proxy), "
        "then run the same command again",
    )
    STAMP.write_text(stamp(requirement))
    say_engine()


def holds(whole: str, part: str) -> bool:
    """Whether one requirement has the extras of another."""
    return set(part.strip(".[]").split(",")) - {""} <= set(whole.strip(".[]").split(","))


def say_engine() -> None:
    """Tells which engine was installed, and how to get the faster one."""
    script = "from rmqctl.kernel import usable; print(usable().problem)"
    done = subprocess.run([PYTHON, "-c", script], cwd=ROOT, env=ENV, capture_output=True, text=True)
    problem = done.stdout.strip() if done.returncode == 0 else done.stderr.strip()
    if not problem:
        say("engine: compiled")
    elif find_cargo() is None:
        say("engine: pure, for there is no cargo here; with Rust installed the faster one is built")
    else:
        say(
            f"engine: pure, for the compiled kernel cannot be used: {problem}. "
            "Next: see build/kernel/cargo.log; when that is mended, remove .venv and run this again"
        )


def stamp(requirement: str) -> str:
    """What .venv was made from: the declared project, the kernel's sources and whether there is a
    cargo for them, where it lies, and what was asked for."""
    sources = [ROOT / "pyproject.toml", ROOT / "hatch_build.py"]
    sources += sorted([*KERNEL.glob("Cargo.*"), *(KERNEL / "src").rglob("*.rs")])
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    return f"{digest}\n{find_cargo() is not None}\n{ROOT}\n{requirement}\n"


def is_usable() -> bool:
    """Tell whether .venv has a running Python, new enough and with pip."""
    probe = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    try:
        return subprocess.run([PYTHON, "-c", probe], env=ENV, capture_output=True).returncode == 0
    except OSError:  # there is none, or what its link pointed to is gone
        return False


def create_venv() -> None:
    install_it = "install it (Debian, Ubuntu: apt install python3-venv), then run this again"
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            fail(f"{sys.executable} comes without the module {module}", install_it)
    say(f"creating {VENV}")
    must_succeed(
        [sys.executable, "-m", "venv", "--clear", VENV],
        f"creating {VENV} failed; Python's own words are above",
        "see that this directory is writable and its disk not full; if a module is missing, "
        + install_it,
    )


def clean_environment() -> dict[str, str]:
    """Return the caller's environment without what would lead the new interpreter astray."""
    astray = {"PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"}
    environment = {name: value for name, value in os.environ.items() if name not in astray}
    environment.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    environment["PYO3_PYTHON"] = str(PYTHON)  # what cargo builds the kernel for
    if not environment.get("HOME"):
        environment.pop("HOME", None)  # an empty one would put pip's cache into /
    return environment


ENV = clean_environment()


def run(command: list[str | Path]) -> int:
    """Run a step in the project's directory and return its exit code as a shell would."""
    code = subprocess.run(command, cwd=ROOT, env=ENV).returncode
    return code if code >= 0 else 128 - code


def must_succeed(command: list[str | Path], problem: str, next_step: str) -> None:
    """Run a step whose output matters only when it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env=ENV, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        print(done.stdout, end="", file=sys.stderr)
        fail(problem, next_step)


def say(text: str) -> None:
    print(f"dev.py: {text}", file=sys.stderr, flush=True)


def fail(problem: str, next_step: str) -> None:
    sys.exit(f"dev.py: {problem}.\nNext: {next_step}.")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
