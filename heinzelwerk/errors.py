"""Every error of the core, in one tree, split by what the caller must do.

HeinzelwerkError
├── GiveUp                     nothing will change by trying again
│   ├── ConfigurationError     a setting or the installation is wrong (exit code 78)
│   ├── Refused                asked for something that is not allowed or not there (exit code 1)
│   ├── ContractRefused        the contract has errors; carries them
│   ├── FormatTooNew           stored by a newer release; nothing was spent
│   ├── SpineDamaged           a spine line does not fit its chain
│   └── BodyExpired            the words are gone, the spine is not
├── RetryLater                 the same call may go through in a while
│   ├── StoreUnavailable       the store did not answer or refused writes
│   ├── ProviderUnavailable    the model's provider is down, busy or broken
│   └── TargetUnavailable      a target provably took nothing (no connection, refused by status, disk full)
├── LeaseLost                  somebody else may hold the record now: stop, write nothing more
├── ReadFailed                 an input could not be read; the turn is told
│   ├── FileError              a named file is missing, unsafe to follow, or out of reach: one class for each
│   └── GitError               git was run and gave no answer: one class for each reason
└── TargetError                an effect's target answered and the answer decides
    ├── TargetMissing          the document, marker or resource is not there
    ├── TargetConflict         it changed since it was shown to the person who approved
    └── TargetUnknown          nobody can say whether the attempt arrived

Each class names the place, the reason and the fix in its message; `fix` repeats the fix alone for programs.
"""

from __future__ import annotations


class HeinzelwerkError(Exception):
    """Something went wrong in a way this project knows; `fix` is the sentence that says what to do."""

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


class GiveUp(HeinzelwerkError):
    """Trying the same again cannot help."""


class ConfigurationError(GiveUp):
    """A setting, a file of settings or the installation is wrong; the message names file, key and reason."""


class Refused(GiveUp):
    """The request is understood and not allowed, or names something that does not exist."""


class ContractRefused(GiveUp):
    """A contract has errors and cannot act; `diagnostics` holds one line each, `file:line code field message`."""

    def __init__(self, message: str, *, diagnostics: tuple[str, ...] = (), fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.diagnostics = diagnostics


class FormatTooNew(GiveUp):
    """A record was written by a newer release than this one reads; nothing was spent and nothing changed."""


class SpineDamaged(GiveUp):
    """A spine line is missing, altered or out of order; the session is quarantined until a person looks."""


class BodyExpired(GiveUp):
    """The body of a turn is past its retention; its spine still says what happened."""


class RetryLater(HeinzelwerkError):
    """The same call may succeed later; `retry_after_s` is the other side's own wish in seconds, if it had one."""

    def __init__(self, message: str, *, fix: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, fix=fix)
        self.retry_after_s = retry_after_s


class StoreUnavailable(RetryLater):
    """The store cannot be reached, is loading, is full or is read-only."""


class ProviderUnavailable(RetryLater):
    """A model's provider answered 429 or 5xx, refused the connection, timed out or cut the stream."""


class TargetUnavailable(RetryLater):
    """An effect's target provably took nothing; the effect goes back to planned."""


class LeaseLost(HeinzelwerkError):
    """The lease of this record is no longer ours; every write with its token is refused from now on."""


class ReadFailed(HeinzelwerkError):
    """An input or a search could not be read; the message is safe to show to the model and to people."""


class FileError(ReadFailed):
    """A file below a directory of the operator's could not be read; nothing was changed."""


class FileMissing(FileError):
    """There is no file of that name."""


class FileUnsafe(FileError):
    """The name leads through a link, or to something that is no plain text file of a bearable size."""


class FileUnreachable(FileError):
    """The system does not let it be read: permissions, a lost mount, a failing disk."""


class GitError(ReadFailed):
    """Git was asked and gave no answer; the message names the repository, git's reason and what to do."""


class GitMissing(GitError):
    """Git itself, or the directory that should hold the repository, is not there."""


class GitNotARepository(GitError):
    """The directory exists and is no git repository."""


class GitTimedOut(GitError):
    """Git did not end within its time; it and its children were killed."""


class GitOutputTooLarge(GitError):
    """Git printed more than the caller takes; nothing is returned, because a cut answer would be a wrong one."""


class GitFailed(GitError):
    """Git ended with an error; the message ends with its own words, cleaned."""


class TargetError(HeinzelwerkError):
    """The target of an effect answered in a way that decides the effect."""


class TargetMissing(TargetError):
    """The document, marker or resource that the effect names does not exist."""


class TargetConflict(TargetError):
    """The target no longer holds what was shown to the person who approved; nothing was overwritten."""


class TargetUnknown(TargetError):
    """The attempt may or may not have arrived; only a read-back after its deadline can tell."""
