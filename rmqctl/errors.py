"""The errors that end a command: each class has a message template and an exit code.

Bad news comes in three kinds. A *status* is RocketMQ's own answer: it is returned. A *finding* is
data about damage: it is yielded. An *error* is raised, and only where the command cannot go on.
Every message says what is wrong and where, what was expected and found, and the next step.
"""

from typing import ClassVar

from rmqctl.limits import system_step


class RmqctlError(Exception):
    """Base of all errors of rmqctl. Its text is ``template`` and the next step (``step``), both
    filled with the keyword values.

    The values are attributes of the same names; ``exit_code`` is that of the process. The text is
    for users of the library. :attr:`for_command_line` has ``command_step`` in place of ``step``,
    where a class gives one: it names the options of the command line.
    """

    template: ClassVar[str] = "{reason}"
    step: ClassVar[str] = ""
    command_step: ClassVar[str] = ""
    exit_code: ClassVar[int] = 5

    def __init__(self, **values: object) -> None:
        self.values = values
        super().__init__(self._filled(self.step))

    @property
    def for_command_line(self) -> str:
        """The text for somebody who has typed a command."""
        return self._filled(self.command_step or self.step)

    def _filled(self, step: str) -> str:
        return f"{self.template} {step}".rstrip().format(**self.values)

    def __getattr__(self, name: str) -> object:
        try:
            return self.__dict__["values"][name]
        except KeyError:
            raise AttributeError(name) from None


class InternalError(RmqctlError):
    """rmqctl contradicts itself: a bug, whatever the bytes of the store are."""

    template = (
        "a bug in rmqctl: {reason}. Report it with what `rmqctl verify` says of the store; "
        "RMQCTL_DEBUG=1 shows the traceback."
    )
    exit_code = 70


class ReadersDisagree(InternalError):
    """Where the scanner finds the end of a run of records the walk has one more, or vice versa."""

    template = (
        "a bug in rmqctl: scanner and walk disagree on what is at physical offset "
        "{physical_offset}. Report it with what `rmqctl dump {physical_offset}` shows; "
        "RMQCTL_DEBUG=1 shows the traceback."
    )


class UsageError(RmqctlError):
    """The caller asked for something that has no meaning."""

    exit_code = 2


class TopicNotAllowed(UsageError):
    """A topic that could not be a directory of its own below ``consumequeue/``."""

    template = (
        "topic {topic!r} cannot be a queue directory: {reason}. Use a topic of letters, digits, "
        "'_', '-', '%' and '|'."
    )


class QueueFilesTooSmall(UsageError):
    """The configuration makes queue files that hold a single unit."""

    template = (
        "queue files of {size} bytes hold one unit, and a broker never finishes its start on such "
        "files. Nothing was changed. Give a broker.conf with mappedFileSizeConsumeQueue of {least} "
        "or more (its default is {default}); where queues have such files already, move "
        "consumequeue/ away first."
    )


class BadInputLine(UsageError):
    """One line of a bulk input is not a message."""

    template = (
        "{source}, line {line}: {reason}. The messages before it are stored ({stored}); correct "
        "the line and continue with `tail -n +{line}`."
    )

    @property
    def for_command_line(self) -> str:
        """The text, and the option that passes over such lines, if any (``ignored_by``)."""
        text, name = super().for_command_line, self.values.get("ignored_by")
        return f"{text} --{str(name).replace('_', '-')} is for such lines." if name else text


class BrokerConfError(UsageError):
    """A ``broker.conf`` that cannot be read as one."""

    template = "{path}: {reason}. Give the broker's own file, lines of `name=value`."


class FilterSyntaxError(UsageError):
    """A SQL92 filter that RocketMQ would not take either."""

    template = (
        'filter, character {position}: {reason}. Write such as "a > 5 AND (b IS NOT NULL OR '
        "c IN ('x', 'y'))\"."
    )


class StoreNotFound(RmqctlError):
    template = "there is no directory {path}."
    step = "Give a broker's storePathRootDir, or create=True for a new store."
    command_step = (
        "Give the broker's storePathRootDir with --store (or RMQCTL_STORE); `rmqctl put --create` "
        "makes a new store."
    )
    exit_code = 3


class NotAStore(RmqctlError):
    template = "{path} is not a RocketMQ store: {reason}."
    step = "Give the directory that holds commitlog/ and consumequeue/."
    command_step = "Give the directory that holds commitlog/ and consumequeue/ with --store."
    exit_code = 3


class StoreInUse(RmqctlError):
    template = (
        "the store {path} is in use: {holder} holds its lock file. Nothing was changed. "
        "Stop the broker (or the other rmqctl) and try again; reading commands work beside it."
    )
    exit_code = 4


class NotWritable(RmqctlError):
    """A change was asked of a store that is open for reading."""

    template = "the store {path} is open for reading: open it with writable=True."
    exit_code = 4


class SystemRefused(RmqctlError):
    """The system has refused something. Some reasons have their own step (:mod:`rmqctl.limits`)."""

    def _filled(self, step: str) -> str:
        return super()._filled(system_step(self.values.get("reason"), step))


class CannotRead(SystemRefused):
    """The system refused the read. This says nothing about the bytes."""

    template = "cannot read {path}: {reason}."
    step = "Check its owner, its permissions and the disk."


class NotAFile(CannotRead):
    """A directory, or another thing, in the place of a file."""

    template = "cannot read {path}: {reason}."
    step = "See what it is (`ls -ld`): a file belongs there."


class CannotWrite(SystemRefused):
    template = "cannot write {path}: {reason}. The store stays valid."
    step = "Check owner, mount and free space, then try again."


class StoreReadOnly(CannotWrite):
    """There is no right to write, or the file system is read only."""

    template = "{path} cannot be written: {reason}. The store stays valid."
    step = "Check owner and mount."
    exit_code = 4


class LogNotForced(CannotWrite):
    """The log could not be forced to disk. The system may have dropped what it could not write, so
    no later flush makes up for it."""

    template = "{path}: the log could not be forced to disk ({reason}): open the store anew."
    step = "Check the disk and its free space first."


class NoFileToWrite(CannotWrite):
    """A write found a directory, or another thing, in the place of a file."""

    template = "cannot write {path}: {reason}."
    step = "See what it is (`ls -ld`): a file belongs there."


class NoDirectoryToWriteTo(CannotWrite):
    template = "cannot write into {path}: it is no directory."
    step = "See what it is (`ls -ld`)."


class CannotWriteThere(CannotWrite):
    """A place where rmqctl writes no file, even if the system lets it."""

    template = "cannot write {path}: {reason}."
    step = "Name another place."


class SymbolicLinkRefused(RmqctlError):
    template = (
        "{path} is a symbolic link, and writers do not follow links inside a store. Put what it "
        "stands for there (or bind-mount it), then try again."
    )


class FileLengthContradiction(RmqctlError):
    template = "{path} has {found} bytes, but {expected} are expected ({why})."
    step = "If the broker uses other sizes, give its configuration; otherwise run `rmqctl verify`."
    command_step = (
        "If the broker uses other sizes, give its broker.conf with --broker-conf; otherwise run "
        "`rmqctl verify`."
    )


class ConfigurationContradiction(FileLengthContradiction):
    """The files agree with each other, but not with the configuration."""

    template = (
        "{path} has {found} bytes, but {expected} are expected ({why}), and no other file or name "
        "says so."
    )
    step = command_step = (
        "Give the broker.conf of this store's own broker; without one, verify goes by the files."
    )


class FileLengthUnproven(RmqctlError):
    """Nothing confirms the size that new files would get: it may be that of a file that was cut."""

    template = (
        "{path} is the only file of the log and has {found} bytes, and nothing confirms that this "
        "is the size of this broker's files: it may have been cut. rmqctl writes to no such log."
    )
    step = "Give the broker's configuration (mappedFileSizeCommitLog)."
    command_step = "Give a --broker-conf with mappedFileSizeCommitLog in it (1 GiB by default)."


class DamagedStore(RmqctlError):
    """The data is damaged, and going on would lose something."""

    template = "{reason} (physical offset {physical_offset}). Run `rmqctl verify` first."


class CommitLogMissing(DamagedStore):
    """Queues without a log: a broker's start destroys them (``CommitLog#recoverNormally``)."""

    template = "{path} has no file, but there are queues with units. Nothing was changed."
    step = (
        "If the log is elsewhere (storePathCommitLog), give the broker's configuration, or mount "
        "its disk."
    )
    command_step = (
        "If the log is elsewhere (storePathCommitLog), give the broker's configuration with "
        "--broker-conf, or mount its disk."
    )


class AmbiguousLog(RmqctlError):
    """Two directories claim the same part of the log."""

    template = (
        "{path} and what {name} lists cannot both be this store's log. Nothing was changed. "
        "Give a broker.conf whose storePathCommitLog lists the directories of this store, and no "
        "file twice."
    )


class TooMuchHere(RmqctlError):
    """There is more to count than one process holds in memory."""

    template = "there are more than {what}."
    step = "Spark counts any number."
    command_step = "Spark counts any number: add --master 'local[*]'."


class ArrowMissing(RmqctlError):
    """Arrow columns or Parquet files are asked for, but pyarrow is not installed."""

    template = "Arrow and Parquet need pyarrow, and {reason}. Install it with `{command}`."


class UnsupportedStore(RmqctlError):
    template = (
        "{path}: {reason}, which this version of rmqctl does not understand. Nothing was changed. "
        "`rmqctl walk commitlog` reads the messages; let the broker write."
    )


class WrittenByItsBrokers(UnsupportedStore):
    """A store that only its brokers can change without harm."""

    template = "{path}: {reason}. Nothing was changed. Let its brokers write; {advice}."


class NoRecordAt(RmqctlError):
    template = (
        "there is no record at physical offset {physical_offset}: {reason}. "
        "`rmqctl info` shows the log's range, `rmqctl walk commitlog` every record."
    )


class BodyUnreadable(RmqctlError):
    """A body that fails its CRC, or does not decompress."""

    template = (
        "the body of the message of topic {topic!r} at physical offset {physical_offset} cannot be "
        "read ({status}): {reason}."
    )
    step = "Its stored_body has the bytes as they are."


class MessageUnreadable(RmqctlError):
    """A queue offset whose message cannot be read."""

    template = (
        "the message of topic {topic!r}, queue {queue_id}, at queue offset {queue_offset} cannot "
        "be read: there is no record where its unit says. `rmqctl verify` says what is wrong."
    )


class PutRefused(RmqctlError):
    """A put had another status than PUT_OK; ``stored`` messages before it are stored. The log has
    the first ``in_log`` messages: the refused one, and some behind it, may be among them, and must
    not be put again."""

    template = (
        "a message of topic {topic!r} was refused with {status}{why}. {stored} before it are "
        "stored. Correct what the status names, and {then}."
    )


class NotARecordStart(NoRecordAt):
    template = (
        "there is no record at physical offset {physical_offset}: {reason}. "
        "The next one starts at {next_offset}."
    )


class NeedsConsent(RmqctlError):
    template = "{reason} Nothing was changed."
    step = "It needs your consent."
    command_step = "Say --yes to do it, or --dry-run to see the plan."
    exit_code = 6


class CheckpointTooLate(RmqctlError):
    template = "{name} {given} is later than the newest record, {limit}: give an earlier time."
    exit_code = 6


class QueuesUnexplained(RmqctlError):
    """A rebuild would leave out queues that a broker has filled (``enableMultiDispatch``)."""

    template = (
        "{queues} hold {units} units of messages that name them (INNER_MULTI_DISPATCH), and under "
        "this configuration the messages go to light queues of other numbers. Nothing was changed. "
        "Give a broker.conf with enableLmq as it was when they were stored; to give these queues "
        "up, move their directories out of consumequeue/ first."
    )
    exit_code = 6


class OutputExists(RmqctlError):
    template = "{path} exists already and is not empty. Give a new place."
    exit_code = 6


class OutputInUse(RmqctlError):
    template = "another rmqctl is writing {path}. Wait for it, or give another place."
    exit_code = 4


class ConfigFileUnreadable(RmqctlError):
    """A file of ``config/`` that is not as a broker writes it."""

    template = (
        "{path}, line {line}, column {column}: {reason}. "
        "`rmqctl config check` compares the files of config/ with their .bak copies."
    )


class NotAConfigFile(ConfigFileUnreadable):
    template = NotAFile.template
    step = NotAFile.step
