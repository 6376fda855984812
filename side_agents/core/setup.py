"""Setting a project up: the scripts that run in every slot, and how finished work lands (reference/side-agents 7).

The scripts are the user's own once they are there. All of it is optional, untracked and kept out of ``git status``.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from side_agents.core import include_list, replicate, settings_edit, setup_files
from side_agents.core.context import Context
from side_agents.core.setup_files import Done, FilePlan, State, Wanted
from side_agents.core.setup_survey import Survey
from side_agents.errors import SideAgentsError, UsageError
from side_agents.infra import clock, git_ignored, git_landing, proc
from side_agents.infra.git import Git
from side_agents.models import FinishPolicy
from side_agents.paths import EXCLUDED, META_DIR
from side_agents.resources import skill_text, template_text

START = ".pi/side-agent-start.sh"
FINISH = ".pi/side-agent-finish.sh"
SKILL = ".pi/side-agent-skills/finish/SKILL.md"
BOOTSTRAP = ".pi/side-agent-bootstrap.sh"
INCLUDE = replicate.LISTS[1]
SETTINGS = f"{META_DIR}/config.toml"
_TARGET_LINE = "side_agent_target=main\n"
_BOOTSTRAP_HEAD = """\
#!/usr/bin/env bash
# .pi/side-agent-bootstrap.sh: prepares the worktree of a new side agent; .pi/side-agent-start.sh runs it there.
#
# Each line below is yours to change. A line that fails keeps the agent from starting; what it printed is in its window.
# Arguments: the parent's checkout, the worktree, the agent's id. Variables exported here do not reach the agent; those
# exported in .pi/side-agent-start.sh do. Do not reset, fetch or move branches here.
set -e -o pipefail
cd -- "${2:-.}"

"""
_INCLUDE_HEAD = """\
# Ignored files that every slot of a side agent gets from the main checkout; syntax of .gitignore.
# A line that begins with link: makes a link instead of a copy. What a slot has already is never replaced.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the user wants. ``bootstrap`` and ``copy`` None: leave those files as they are. ``check`` None: no check."""

    branch: str
    policy: FinishPolicy = FinishPolicy.REBASE_FF
    check: str | None = None
    bootstrap: tuple[str, ...] | None = None
    copy: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """The files to write and what the user should know first."""

    files: tuple[FilePlan, ...]
    warnings: tuple[str, ...] = ()


def default_answers(context: Context, found: Survey) -> Answers:
    """What is taken when nothing is said: the present settings, else what was found. ``branch`` may be empty.

    A bootstrap script or list that exists is left as it is.
    """
    config, root = context.config, context.paths.root
    steps = tuple(step.command for step in found.steps if step.chosen)
    copies = tuple(include_list.literal(each.path) for each in found.copies if "\n" not in each.path)
    return Answers(
        branch=found.branch or "",
        policy=config.finish_policy,
        check=config.finish_check or (found.checks[0].command if found.checks else None),
        bootstrap=None if (root / BOOTSTRAP).exists() else steps,
        copy=None if (root / INCLUDE).exists() else copies,
    )


def plan(context: Context, answers: Answers, found: Survey) -> SetupPlan:
    """What would be written. Raises UsageError for answers that cannot be right; nothing is changed by this."""
    _check_branch(context, answers.branch)
    if answers.check:
        check_shell(answers.check, "sh", "The check")
    wanted = list(_shipped(answers.branch))
    if answers.bootstrap:
        wanted.append(Wanted(BOOTSTRAP, bootstrap_script(answers.bootstrap), 0o755))
    if answers.copy:
        wanted.append(Wanted(INCLUDE, include_text(answers.copy), 0o644))
    files = [setup_files.look(context.paths, each) for each in wanted]
    files.append(_settings(context, answers))
    return SetupPlan(tuple(files), (*found.warnings, *_warnings(context, answers, found)))


def upgrade_plan(context: Context) -> SetupPlan:
    """The shipped scripts as they are today against the installed ones; what is not installed is left out."""
    branch = context.config.finish_target
    branch = branch or git_landing.default_branch(Git(context.checkout), context.paths.root) or "main"
    files = [setup_files.look(context.paths, each) for each in _shipped(branch)]
    present = tuple(each for each in files if each.state is not State.NEW)
    if not present:
        raise UsageError(
            "Nothing is installed here that could be upgraded. Nothing was changed.", hint="Run `side-agents setup`."
        )
    missing = [each.wanted.name for each in files if each.state is State.NEW]
    return SetupPlan(present, tuple(f"{name} is not installed; `side-agents setup` makes it." for name in missing))


def apply(context: Context, planned: SetupPlan, consented: Collection[str]) -> tuple[Done, ...]:
    """Write the files whose names are consented to; each is written as a whole or left as it was."""
    if consented:
        Git(context.checkout).ensure_excludes(EXCLUDED)
    stamp = clock.stamp()
    return tuple(
        setup_files.install(context.paths, each, consent=each.wanted.name in consented, stamp=stamp)
        for each in planned.files
    )


def bootstrap_script(steps: Sequence[str]) -> str:
    """The bootstrap script with these lines, as they are. Raises UsageError for one that is no complete shell."""
    for step in steps:
        check_shell(step, "bash", "The bootstrap step")
    text = _BOOTSTRAP_HEAD + "\n".join(steps) + "\n"
    check_shell(text, "bash", "The bootstrap script")
    return text


def include_text(patterns: Sequence[str]) -> str:
    """The list with these lines. Raises UsageError for one that could never match."""
    for pattern in patterns:
        if "\n" in pattern or "\0" in pattern or not include_list.parse(pattern):
            raise UsageError(f"{pattern!r} is no pattern for files to copy. Nothing was changed.")
    return _INCLUDE_HEAD + "\n".join(patterns) + "\n"


def check_shell(text: str, shell: str, what: str) -> None:
    """Raise UsageError unless the shell can read the text, complete as it stands; nothing of it is run."""
    if not text.strip() or "\0" in text:
        raise UsageError(f"{what} is empty or has a NUL character in it. Nothing was changed.")
    done = proc.run((shell, "-n"), input=f"{text}\n".encode("utf-8", "surrogateescape"), check=False)
    # An unfinished here-document is only a warning to bash.
    if done.returncode != 0 or done.error_text.strip():
        words = done.error_text.strip().splitlines()
        raise UsageError(f"{what} is not complete shell: {words[0] if words else text!r}. Nothing was changed.")


def _shipped(branch: str) -> tuple[Wanted, ...]:
    head, mark, tail = template_text("side-agent-start.sh").partition(_TARGET_LINE)
    if not mark:
        raise UsageError("The template of the start script has lost its place for the branch; nothing was changed.")
    start = f"{head}{_TARGET_LINE.partition('=')[0]}={shlex.quote(branch)}\n{tail}"
    return (
        Wanted(START, start, 0o755),
        Wanted(FINISH, template_text("side-agent-finish.sh"), 0o755),
        Wanted(SKILL, skill_text("finish"), 0o644),
    )


def _settings(context: Context, answers: Answers) -> FilePlan:
    """The plan for config.toml, of which only our three values are ours to set."""
    policy, check = str(answers.policy), answers.check or None
    values = {"finish_policy": policy, "finish_target": answers.branch, "finish_check": check}
    seen = setup_files.look(context.paths, Wanted(SETTINGS, "", 0o600))
    if seen.state is State.BLOCKED:
        return seen
    old = (seen.old or b"").decode("utf-8", "surrogateescape")
    wanted = Wanted(SETTINGS, settings_edit.with_values(old, values), 0o600)
    other = settings_edit.differing(old, values)
    if seen.old is None:
        state, note = State.NEW, None
    elif wanted.text == old:
        state, note = State.SAME, None
    elif other:
        state, note = State.CHANGED, f"it has another {' and '.join(other)}"
    else:
        state, note = State.OUTDATED, "lines are added to it"
    return FilePlan(wanted, seen.path, state, seen.old, None, note)


def _check_branch(context: Context, branch: str) -> None:
    is_name = bool(branch) and not branch.startswith("-") and "\0" not in branch
    if is_name:
        done = Git(context.checkout).run("check-ref-format", f"refs/heads/{branch}", check=False)
        is_name = done.returncode == 0
    if not is_name:
        raise UsageError(
            f"{branch!r} is no name for a branch. Nothing was changed."
            if branch
            else "It is not clear which branch work lands on. Nothing was changed.",
            hint="Name it: --branch BRANCH",
        )


def _warnings(context: Context, answers: Answers, found: Survey) -> list[str]:
    git = Git(context.checkout)
    warnings = []
    if not git.branch_exists(answers.branch):
        warnings.append(f"There is no local branch {answers.branch} yet; work cannot land before there is one.")
    if found.committed:
        names = ", ".join(found.committed[:3])
        warnings.append(
            f"Committed, but meant to stay untracked: {names}. Untrack them and keep the files: "
            f"git rm --cached -r -- {' '.join(shlex.quote(name) for name in found.committed[:3])}"
        )
    steps = "\n".join(answers.bootstrap or ())
    made = {".venv/": "-m venv .venv", "node_modules/": "npm "}
    wanted = [folder for folder, sign in made.items() if sign in steps]
    try:
        ignored = git_ignored.filter_ignored(git, wanted)
    except SideAgentsError:
        return warnings
    warnings += [
        f"{folder} is not ignored by git, so it will look like the agent's own work: add it to .gitignore."
        for folder in wanted
        if folder not in ignored
    ]
    return warnings
