"""The policy "pr": push the branch, and open a pull or merge request with the forge's own program where there is one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from side_agents.core import finish_check
from side_agents.core.finish_survey import Finished, Job, stopped
from side_agents.core.landing import Facts, Outcome, Reason, verdict
from side_agents.errors import CommandFailedError, GitError
from side_agents.infra import git_landing, proc
from side_agents.infra.proc import Completed

_DEADLINE = 120.0
_URL = re.compile(r"https?://\S+")


def open_request(job: Job, facts: Facts) -> Finished:
    """Push, then open a request; without ``gh`` or ``glab`` the push is all, and the answer says so.

    The parent's branch of a nested agent is pushed first, so that it can be the base (reference/side-agents 7.5).
    """
    if facts.check is not None:
        reason, output = finish_check.run(job, facts.check)
        if reason is not None:
            return stopped(facts, reason, output=output)
    remote = git_landing.remote_of(job.slot, facts.target)
    if remote is None:
        return stopped(
            facts,
            Reason(
                Outcome.MISUSE,
                "It is not clear which remote to push to. Nothing was changed.",
                "Add one called origin: git remote add origin URL",
            ),
        )
    git_landing.require_own(job.slot, job.context.layout.common_dir)
    try:
        for branch in (facts.target, facts.own_branch) if facts.is_nested else (facts.own_branch,):
            git_landing.push(job.slot, remote, branch, deadline=job.context.config.git_timeout)
    except CommandFailedError as error:
        words = error.stderr.strip() if isinstance(error, GitError) else ""
        why = f"The push to {remote} failed: {words or error.message}"
        return stopped(facts, Reason(Outcome.NOT_MOVED, why, _after_push(job, remote, words or error.message)))
    return _request(job, facts, remote)


def _request(job: Job, facts: Facts, remote: str) -> Finished:
    url = job.slot.run("remote", "get-url", "--", remote, check=False).text
    program = _program(job, url)
    pushed = f"{facts.own_branch} was pushed to {remote}"
    if program is None:
        reason = Reason(
            Outcome.PUSHED,
            f"{pushed}; no pull request was opened, because neither gh nor glab is installed for {_shown(url)}.",
            f"Open one from {facts.own_branch} to {facts.target} on the forge's page.",
        )
        return Finished(verdict(facts, reason), commit=facts.head)
    done = _call(job, program, facts)
    said = f"{done.text}\n{done.error_text}"
    link = next(iter(_URL.findall(said)), None)
    if done.returncode == 0 or "already exists" in said:
        how = "is open" if done.returncode == 0 else "was open already"
        reason = Reason(Outcome.REQUESTED, f"{pushed} and a request against {facts.target} {how}.")
        return Finished(verdict(facts, reason), commit=facts.head, url=link)
    reason = Reason(
        Outcome.NOT_MOVED,
        f"{pushed}, but {program.name} opened no request: {done.error_text.strip() or done.text.strip() or 'no reason given'}",
        "Open it by hand, or run finish again.",
    )
    return Finished(verdict(facts, reason), commit=facts.head)


def _program(job: Job, url: str) -> Path | None:
    wanted: tuple[str, ...] = ("gh", "glab")
    if "github" in url:
        wanted = ("gh",)
    elif "gitlab" in url:
        wanted = ("glab",)
    path = job.context.environment.get("PATH")
    return next((found for name in wanted if (found := proc.find_program(name, path=path)) is not None), None)


def _call(job: Job, program: Path, facts: Facts) -> Completed:
    if program.name == "gh":
        argv = ["pr", "create", f"--base={facts.target}", f"--head={facts.own_branch}", "--fill"]
    else:
        argv = [
            "mr",
            "create",
            f"--target-branch={facts.target}",
            f"--source-branch={facts.own_branch}",
            "--fill",
            "--yes",
        ]
    environment = {**job.context.environment, "GH_PROMPT_DISABLED": "1", "GIT_TERMINAL_PROMPT": "0"}
    try:
        return proc.run([program, *argv], cwd=job.slot.directory, env=environment, deadline=_DEADLINE, check=False)
    except CommandFailedError as error:
        return Completed((str(program),), 1, b"", error.message.encode("utf-8", "surrogateescape"))


def _after_push(job: Job, remote: str, words: str) -> str:
    if "non-fast-forward" not in words and "fetch first" not in words:
        return "The work is committed; push it when that is possible."
    git, branch = f"git -C {shlex.quote(str(job.slot.directory))}", job.subject.branch
    return (
        f"{remote} has other commits on {branch}: `{git} fetch {remote} {branch}`, then `git log HEAD..FETCH_HEAD` there. "
        "If they are only an earlier state of this work, as after a rebase: "
        f"`{git} push --force-with-lease {remote} {branch}`; do not pull. Then run finish again."
    )


def _shown(url: str) -> str:
    # An address may carry a password.
    return re.sub(r"//[^/@]*@", "//", url) or "that remote"
