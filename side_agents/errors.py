"""Every error a user can meet, in one tree. Texts may change; codes and exit statuses are interface.

SideAgentsError                error              1
├── UsageError                 usage              2   bad input, refused before anything changed
├── NotFoundError              not-found          3
│   └── UnknownAgentError      unknown-agent      3
├── ConflictError              conflict           4   something else holds the name, slot or branch
├── BusyError                  busy               5   a lock could not be had in time
├── CommandFailedError         command-failed     6   a program we ran failed; keeps argv, status, stderr
│   ├── DeadlineError          deadline           6   it did not answer in time and was ended
│   ├── GitError               git-failed         6
│   └── TmuxError              tmux-failed        6
│       └── TmuxUnreachableError tmux-unreachable 6   no answer: nothing is known, nothing changed
├── StateError                 state-corrupt      7   unreadable state is kept and refused
│   └── StateFromFutureError   state-too-new      7
├── RefusedError               refused            8   a precondition does not hold
│   ├── NotInTmuxError         not-in-tmux        8
│   ├── NotARepositoryError    not-a-repository   8
│   ├── NoCommitsError         no-commits         8
│   ├── DepthError             depth              8
│   └── BudgetError            budget             8
├── NotDeliveredError          not-delivered      9   a message was not taken by the agent
├── WaitTimeoutError           timeout           10
├── CancelledError             cancelled        130   the caller took a wait back
├── StartFailedError           start-failed      11   a start was rolled back; says what is left
├── ForumError                 forum             12   the forum refused or failed; `forum_code` says which
└── ToolMissingError           tool-missing     127   a program that is needed is not installed
"""

from __future__ import annotations

from collections.abc import Sequence


class SideAgentsError(Exception):
    """Root of all expected failures.

    ``str(error)`` says what happened and what is safe; ``hint`` says what to do next, often a command to type.
    """

    code = "error"
    exit_status = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    @property
    def message(self) -> str:
        """What happened, as one or more plain sentences."""
        return str(self)


class UsageError(SideAgentsError):
    """Input that cannot be right; nothing was changed."""

    code = "usage"
    exit_status = 2


class NotFoundError(SideAgentsError):
    """Something named does not exist."""

    code = "not-found"
    exit_status = 3


class UnknownAgentError(NotFoundError):
    """An agent id that this repository has never seen."""

    code = "unknown-agent"


class ConflictError(SideAgentsError):
    """A name, slot or branch is held by something else."""

    code = "conflict"
    exit_status = 4


class BusyError(SideAgentsError):
    """A lock is held by a live process and was not freed in time."""

    code = "busy"
    exit_status = 5


class CommandFailedError(SideAgentsError):
    """A program that we ran returned a failure; its own words are kept in ``stderr``."""

    code = "command-failed"
    exit_status = 6

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        argv: Sequence[str] = (),
        returncode: int | None = None,
        stderr: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.argv = tuple(argv)
        self.returncode = returncode
        self.stderr = stderr


class DeadlineError(CommandFailedError):
    """A program did not answer within its deadline and was ended."""

    code = "deadline"


class GitError(CommandFailedError):
    """git refused or failed."""

    code = "git-failed"


class TmuxError(CommandFailedError):
    """tmux refused or failed."""

    code = "tmux-failed"


class TmuxUnreachableError(TmuxError):
    """The tmux server gave no answer, so nothing may be concluded about its panes."""

    code = "tmux-unreachable"


class StateError(SideAgentsError):
    """A state file cannot be read; it is kept as it is."""

    code = "state-corrupt"
    exit_status = 7


class StateFromFutureError(StateError):
    """A state file was written by a newer version of side-agents."""

    code = "state-too-new"


class RefusedError(SideAgentsError):
    """A precondition does not hold; nothing was changed."""

    code = "refused"
    exit_status = 8


class NotInTmuxError(RefusedError):
    """The caller is not inside a tmux pane."""

    code = "not-in-tmux"


class NotARepositoryError(RefusedError):
    """The directory belongs to no git repository."""

    code = "not-a-repository"


class NoCommitsError(RefusedError):
    """The repository has no commit to start a branch from."""

    code = "no-commits"


class DepthError(RefusedError):
    """The nesting limit is reached."""

    code = "depth"


class BudgetError(RefusedError):
    """As many agents run as the settings allow."""

    code = "budget"


class NotDeliveredError(SideAgentsError):
    """A message was not taken by the agent; the message says where the text is now."""

    code = "not-delivered"
    exit_status = 9


class WaitTimeoutError(SideAgentsError):
    """No agent reached a wanted state in the given time."""

    code = "timeout"
    exit_status = 10


class CancelledError(SideAgentsError):
    """Whoever had asked for a wait no longer wants it; nothing was changed."""

    code = "cancelled"
    exit_status = 130


class StartFailedError(SideAgentsError):
    """A start failed after its reservation; the message says what was rolled back and what is left."""

    code = "start-failed"
    exit_status = 11


class ForumError(SideAgentsError):
    """The forum refused a request or could not keep it (reference/forum.md 5.2).

    ``forum_code`` is the code on the wire, ``status`` its HTTP status; ``retryable`` means that the very same request may
    be sent again, after ``retry_after`` seconds where that is known; ``field`` names the part of the request that was wrong.
    Build it with ``forum.failures.fail``.
    """

    code = "forum"
    exit_status = 12

    def __init__(
        self,
        message: str,
        *,
        forum_code: str = "internal",
        status: int = 500,
        retryable: bool = False,
        field: str | None = None,
        hint: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.forum_code = forum_code
        self.status = status
        self.retryable = retryable
        self.field = field
        self.retry_after = retry_after


class ToolMissingError(SideAgentsError):
    """A program that is needed is not installed or not on PATH."""

    code = "tool-missing"
    exit_status = 127
