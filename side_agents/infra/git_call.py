"""How git is started: GitPython's door, with the hygiene that a program in the background owes its user.

Nothing that a repository's configuration names is run unasked (hooks, fsmonitor; field report 71), nothing is waited
for at a terminal, an outer git's variables (we may run inside a hook) do not redirect us, every call has a deadline.
GitPython's own ``kill_after_timeout`` sends KILL, which leaves git's lock files behind; here git gets TERM first.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from side_agents.errors import DeadlineError, GitError, NotFoundError, ToolMissingError
from side_agents.infra.proc import Completed

if TYPE_CHECKING:
    from git.cmd import Git as Door

DEADLINE = 30.0
_GRACE = 1.0
_PIPE = -1
_KEPT = (
    "GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_SSH", "GIT_ASKPASS", "GIT_SSL_", "GIT_HTTP_", "GIT_PROXY_", "GIT_PYTHON_",
    "GIT_EXEC_PATH", "GIT_ALLOW_PROTOCOL", "GIT_PROTOCOL", "GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_",
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM",
    "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_",
)  # fmt: skip
_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_PAGER": "cat",
    "GIT_MERGE_AUTOEDIT": "no",
}
_CONFIG = (
    "core.fsmonitor=false", "core.quotePath=false", "gc.auto=0", "maintenance.auto=false", "advice.detachedHead=false",
    "submodule.recurse=false", "color.ui=false",
)  # fmt: skip


def call(
    directory: Path,
    args: Sequence[str],
    *,
    hooks: bool = False,
    config: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    input: bytes | None = None,  # noqa: A002
    deadline: float = DEADLINE,
    check: bool = True,
) -> Completed:
    """Run git in a directory; with ``check`` any status but 0 raises GitError with git's own words.

    ``hooks`` lets the repository's hooks run. Raises DeadlineError, NotFoundError (no such folder), ToolMissingError.
    """
    settings = (*_CONFIG, *(() if hooks else ("core.hooksPath=/dev/null",)), *config)
    # -C: GitPython would quietly stay in our own directory if the wanted one is missing.
    argv = [
        *_clean(os.environ),
        "git",
        "-C",
        str(directory),
        *(part for item in settings for part in ("-c", item)),
        *args,
    ]
    if not directory.is_dir():
        raise NotFoundError(f"git was not run: the folder {directory} does not exist.")
    done = _GitCall(directory, argv, {**_ENVIRONMENT, **(env or {})}, input).answer(deadline, shown=("git", *args))
    if check and done.returncode != 0:
        raise failure(done)
    return done


def failure(done: Completed) -> GitError:
    """The error for a git that failed."""
    words = done.error_text.strip() or done.text.strip() or f"status {done.returncode} and no explanation."
    verb = next((item for item in done.argv[1:] if not item.startswith("-")), "")
    return GitError(f"git {verb}: {words}", argv=done.argv, returncode=done.returncode, stderr=done.error_text)


def _clean(environ: Mapping[str, str]) -> list[str]:
    # GitPython always passes our own environment on; usually there is nothing to take out of it, and no cost.
    foreign = [name for name in environ if name.startswith("GIT_") and not name.startswith(_KEPT)]
    foreign = [name for name in foreign if name not in _ENVIRONMENT]
    return ["env", *(part for name in foreign for part in ("-u", name))] if foreign else []


class _GitCall(Thread):
    """One git process; the thread waits for it so that the caller can stop waiting."""

    def __init__(self, directory: Path, argv: list[str], env: Mapping[str, str], data: bytes | None) -> None:
        super().__init__(name="git-call", daemon=True)
        from git.cmd import Git as Door  # 85 ms
        from git.exc import GitCommandNotFound  # loaded by the line above

        door: Door = Door(str(directory))
        stdin = None if data is None else _PIPE
        try:
            handle = door.execute(argv, istream=stdin, as_process=True, env=env, start_new_session=True)
        except GitCommandNotFound as error:
            raise ToolMissingError("git is needed and was not found.", hint="Install git 2.31 or newer.") from error
        # The handle ends git when it is collected.
        self._handle = handle
        self._data = data
        self._output: tuple[bytes, bytes] = (b"", b"")

    def run(self) -> None:
        """The thread's part: feed git and collect what it writes."""
        process = self._handle.proc
        if process is not None:
            self._output = process.communicate(self._data)

    def answer(self, deadline: float, *, shown: tuple[str, ...]) -> Completed:
        """Wait for git; at the deadline it and everything it started are ended."""
        process = self._handle.proc
        assert process is not None
        try:
            self.start()
            self.join(deadline)
        except BaseException:
            self._end(process.pid)
            raise
        if self.is_alive():
            self._end(process.pid)
            raise DeadlineError(f"{' '.join(shown)} did not end within {deadline:g} s and was ended.", argv=shown)
        return Completed(shown, process.returncode, *self._output)

    def _end(self, group: int) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
            self.join(_GRACE)
