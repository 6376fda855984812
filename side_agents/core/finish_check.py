"""The project's own check, run on exactly what is about to land."""

from __future__ import annotations

from side_agents.core.finish_survey import Job
from side_agents.core.landing import Outcome, Reason
from side_agents.errors import DeadlineError
from side_agents.infra import proc, text

TAIL_LINES = 30
# What an outer git tells its hooks would lead the check's own git calls astray.
_MISLEADING = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY",
    "GIT_NAMESPACE", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
)  # fmt: skip


def run(job: Job, command: str) -> tuple[Reason | None, tuple[str, ...]]:
    """Run the check command in the agent's worktree, without a terminal; why it failed, and the end of its output."""
    timeout = job.context.config.finish_check_timeout
    environment = {name: value for name, value in job.context.environment.items() if name not in _MISLEADING}
    job.notify(f"checking: {command}")
    # All output goes one way, so that its order survives; and to standard error, which is kept at a deadline too.
    argv = ("sh", "-c", f"exec 1>&2\n{command}")
    try:
        done = proc.run(argv, cwd=job.slot.directory, env=environment, deadline=timeout, check=False)
    except DeadlineError as error:
        how = f"did not end within {timeout:g} s"
        if error.returncode == 0:
            how = f"ended, but what it had left running kept its output open for {timeout:g} s and was ended"
        return _failed(command, how), _tail(error.stderr)
    if done.returncode == 0:
        return None, ()
    how = f"exited with {done.returncode}" if done.returncode > 0 else f"was ended by signal {-done.returncode}"
    return _failed(command, how), _tail(done.error_text)


def _failed(command: str, how: str) -> Reason:
    return Reason(
        Outcome.CHECK_FAILED,
        f"The check `{command}` {how}. Nothing landed; the branch is up to date with its target.",
        "Fix what it complains about, commit, and run finish again.",
    )


def _tail(output: str) -> tuple[str, ...]:
    lines = text.tail_lines(output, TAIL_LINES)
    return tuple(text.printable(line)[:400] for line in lines)
