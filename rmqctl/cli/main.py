"""``rmqctl``: the entry point. Errors become one line on stderr and an exit code here."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from rmqctl import __version__
from rmqctl.cli import pager
from rmqctl.cli.again import begun_anew
from rmqctl.cli.command import command_first
from rmqctl.cli.lazy import LazyGroup
from rmqctl.cli.output import note, say
from rmqctl.cli.pasted import forget
from rmqctl.cli.sink import has_reader_gone, let_stderr_go, silence_stdout
from rmqctl.engine.files.answers import is_one_missing
from rmqctl.engine.files.openfiles import allow_open_files
from rmqctl.errors import InternalError, RmqctlError
from rmqctl.limits import system_step
from rmqctl.lostpages import tell_of_lost_pages

_COMMANDS = "rmqctl.cli.commands."
#: Exit codes of exceptions that are not rmqctl's own errors.
_SYSTEM_REFUSES = 5
_BUG = 70
#: What the system's loader says of a library that the memory has no room for.
_NOT_MAPPED = "failed to map segment"
#: Files that a process may have open, where the system allows as many: a put keeps the files of up
#: to 1,024 queues open, and would end in many queues where the soft limit is 256.
_OPEN_FILES = 1 << 14


def _section(*names: str) -> dict[str, str]:
    return {name: _COMMANDS + name for name in names}


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Prints the version; with ``-v`` also what scans."""
    if not wanted or context.resilient_parsing:
        return
    print_version(verbose=context.meta.get("verbose", False))
    context.exit()


def print_version(*, verbose: bool) -> None:
    """The version on stdout, and with ``verbose`` what scans."""
    click.echo(f"rmqctl, version {__version__}")
    if verbose:
        from rmqctl.kernel import description

        click.echo(f"engine: {description()}")


def _verbose(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    context.meta["verbose"] = wanted


@click.group(
    cls=LazyGroup,
    sections={
        "Inspect (never writes)": _section(
            "browse",
            "info",
            "topics",
            "queues",
            "groups",
            "walk",
            "dump",
            "verify",
            "diff",
            "du",
            "config",
        )
        | {"simulate-start": _COMMANDS + "simulate_start"}
        | _section("checkpoint", "lint", "fleet"),
        "Query (never writes)": _section(
            "find", "pull", "message", "offset", "index", "pop", "tiered", "stats", "sql"
        ),
        "Write": _section("put", "flush", "clean", "group", "schedule", "timer", "transaction"),
        "Serve": _section("serve", "replicate"),
        "Bulk": _section("rebuild", "repair", "salvage", "backup", "restore", "export")
        | {"import": _COMMANDS + "import_"},
        "Try": _section("corrupt", "demo", "help", "version"),
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`rmqctl COMMAND --help` has examples. --store and the other options that every command "
    "has may also stand before the command. Field names of rows and exit codes are stable.",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    callback=_version,
    help="Show the version, with -v also the engine, and exit.",
)
# Eager: the version asks whether it was given.
@click.option("-v", is_flag=True, is_eager=True, expose_value=False, hidden=True, callback=_verbose)
def cli() -> None:
    """Inspect, verify, repair, rebuild and write RocketMQ broker stores offline."""


#: Commands that change no store: what they write stands in a new place.
_ELSEWHERE = {"rebuild", "salvage", "backup", "export"}
#: Commands that may begin anew: those that change no store. `browse` and `fleet` look again
#: themselves.
_READING = (
    {name for section, names in cli.sections.items() if "never writes" in section for name in names}
    | _ELSEWHERE
) - {"browse", "fleet"}


def main() -> None:
    """The console script."""
    _begin_in_utf8()
    if sys.stdin is None:
        # Closed by the caller (`<&-`). The descriptor is taken, so that no file of a store gets it
        # and is read as input.
        os.open(os.devnull, os.O_RDONLY)
    for name in ("stdout", "stderr"):
        # Closed by the caller (`>&-`). Opening takes the descriptor, too: no file of a store gets
        # it.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    sys.unraisablehook = interrupts_again
    # What numpy brings for matrices starts a thread for each core, which waits by spinning. No
    # command multiplies matrices, and without them numpy is imported in half the time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    allow_open_files(_OPEN_FILES)
    tell_of_lost_pages()
    try:
        code = run()
    except Exception as error:
        import traceback

        say(traceback.format_exc().rstrip("\n"))
        code = _SYSTEM_REFUSES if isinstance(error, OSError | MemoryError) else _BUG
    finally:
        let_stderr_go()
    if is_one_missing():
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


def _begin_in_utf8() -> None:
    """Begins again in Python's UTF-8 mode where the locale has names of files in another encoding:
    the names of topics, which are directories, are UTF-8. What is printed stays in the locale's."""
    if sys.getfilesystemencoding() != "utf-8" and sys.executable:
        if sys.stdout is not None:
            os.environ.setdefault("PYTHONIOENCODING", sys.stdout.encoding)
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def interrupts_again(lost: sys.UnraisableHookArgs) -> None:
    """Raises a Ctrl-C again that came while a finalizer ran.

    Python raises KeyboardInterrupt in the finalizer, prints it and goes on; py4j has many
    finalizers. The interrupt is sent again when this function has ended, as it would be lost in
    here, too.
    """
    if issubclass(lost.exc_type, ConnectionError):
        return  # Of a socket to a process that has ended, which is told elsewhere.
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    import time
    from _thread import interrupt_main, start_new_thread

    has_ended = [False]

    def interrupt_again() -> None:
        while not has_ended[0]:
            time.sleep(0.001)
        interrupt_main()

    try:
        start_new_thread(interrupt_again, ())
    finally:
        # Python hears no signal between this and the end of the function, as it does after a call.
        has_ended[0] = True


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code. It raises only with RMQCTL_DEBUG, which
    asks for the traceback of an error."""
    if "_RMQCTL_COMPLETE" in os.environ:
        from rmqctl.cli.completing import answer

        answer(cli)
    try:
        code = _invoke(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        if not has_reader_gone():
            raise  # Another pipe is broken, and RMQCTL_DEBUG asks for the traceback.
        # The reader of stdout has what it wants (`| head`).
        silence_stdout()
        return 0
    except KeyboardInterrupt:
        return 130
    finally:
        pager.finish()


def _invoke(arguments: list[str]) -> int:
    forget()
    try:
        code = _called(arguments)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        say(error.ctx.get_help())
        return error.exit_code
    except click.ClickException as error:
        _usage(error)
        return error.exit_code
    except click.Abort as error:
        raise KeyboardInterrupt from error
    except RmqctlError as error:
        if isinstance(error, InternalError) and _wants_traceback():
            raise
        note(f"error: {error.for_command_line}")
        return error.exit_code
    except KeyboardInterrupt:
        raise
    except OSError as error:
        if _wants_traceback() or (isinstance(error, BrokenPipeError) and has_reader_gone()):
            raise
        where = f"{error.filename}: " if error.filename else ""
        step = system_step(error.strerror, "Check owner, permissions and disk.")
        note(
            f"error: {where}{error.strerror or error}. The system refused, which says nothing "
            f"about the store. {step}"
        )
        return _SYSTEM_REFUSES
    except Exception as error:
        if _wants_traceback():
            raise
        if isinstance(error, MemoryError) or _NOT_MAPPED in str(error):
            note("error: not enough memory. Give the process more, or look at less at once.")
            return _SYSTEM_REFUSES
        note(
            f"error: a bug in rmqctl: {type(error).__name__}: {error}. "
            "Run again with RMQCTL_DEBUG=1 for the traceback, and report it."
        )
        return _BUG


def _called(arguments: list[str]) -> object:
    """What a command returns, called again where it may begin anew (:mod:`rmqctl.cli.again`)."""

    def call() -> object:
        with cli.make_context("rmqctl", [*arguments]) as context:
            return cli.invoke(context)

    name, *rest = command_first(arguments) or [""]
    changes_nothing = name in _READING or rest[:1] == ["ls"]
    if name == "clean":  # Other dry runs are refused beside a broker.
        changes_nothing = "--dry-run" in rest
    return begun_anew(call, arguments) if changes_nothing else call()


def _wants_traceback() -> bool:
    return os.environ.get("RMQCTL_DEBUG", "") not in ("", "0")


def _usage(error: click.ClickException) -> None:
    """click's message in one line, and where to look."""
    text = " ".join(error.format_message().split()).rstrip(".")
    text = text[:1].lower() + text[1:]
    stop = "" if text.endswith("?") else "."
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = "rmqctl" if context is None else context.command_path
    note(f"error: {text}{stop} Try `{path} --help`.")
