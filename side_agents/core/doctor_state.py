"""Checks of the state folder: locks, registry, history, what killed writes left, permissions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from side_agents.core import finish_record
from side_agents.core.doctor_site import Site
from side_agents.core.findings import Finding, Severity, some
from side_agents.errors import SideAgentsError, StateError, StateFromFutureError
from side_agents.infra import clock, fs, fs_survey, processes
from side_agents.models import ProcessRef

OLD_SECONDS = 3600.0
_HELD_LONG = 60.0
_MEND = "side-agents doctor --repair"


def registry_holds(site: Site) -> Iterator[Finding]:
    """Readable, of our version, complete, with a usable copy of the state before."""
    paths = site.paths
    if site.state is None:
        yield _unreadable(site)
        return
    if not paths.registry.exists():
        if paths.registry_backup.exists() or _leased(site) or site.launchers:
            yield Finding(
                code="registry-missing",
                severity=Severity.PROBLEM,
                what=f"{paths.registry} is gone, and agents were here.",
                safe="Branches, slots, leases and runtime folders are as they were; running agents go on.",
                mend=_MEND,
                repair=_REBUILD,
                subject="registry.json",
            )
        return
    if site.state.foreign:
        yield Finding(
            code="registry-rows",
            severity=Severity.WARNING,
            what=f"Entries that this version cannot read: {some(sorted(site.state.foreign))}.",
            safe="They are kept as they are, and their names count as taken.",
            mend="Upgrade side-agents to the version that wrote them: pipx upgrade side-agents",
        )
    yield from _sequence(site)
    try:
        site.context.registry.read_backup()
    except StateError as error:
        yield Finding(
            code="backup-unreadable",
            severity=Severity.WARNING,
            what=error.message,
            safe="The registry itself is in order.",
            mend=_MEND,
            repair="keep it aside and copy the present registry in its place",
            subject="registry.json.bak",
        )


_REBUILD = (
    "rebuild the registry from its backup, the leases, runtime folders, windows and branches; what is there now is kept "
    "beside it as registry.json.broken-<time>"
)


def _unreadable(site: Site) -> Finding:
    error = site.registry_error
    is_newer = isinstance(error, StateFromFutureError)
    is_closed = error is not None and isinstance(error.__cause__, OSError)
    return Finding(
        code="registry-newer" if is_newer else "registry-unreadable",
        severity=Severity.PROBLEM,
        what=error.message if error is not None else "The registry cannot be read.",
        safe="Every command refuses to change it. Branches, slots and runtime folders are as they were; running agents go on.",
        mend=(error.hint or "") if is_newer and error else "Check who may read it." if is_closed else _MEND,
        repair=None if is_newer or is_closed else _REBUILD,
        subject="registry.json",
    )


def _leased(site: Site) -> bool:
    return any(slot.lease is not None and slot.lease.agent_id for slot in site.slots)


def _sequence(site: Site) -> Iterator[Finding]:
    state = site.state
    if state is None:
        return
    highest = max(
        [record.stop_seq for record in state.agents.values()] + [stone.stop_seq for stone in site.history] + [0]
    )
    if state.sequence < highest:
        yield Finding(
            code="sequence-low",
            severity=Severity.WARNING,
            what=f"The registry counts {state.sequence} stops, but number {highest} was handed out: "
            "`side-agents wait` would miss the next ones.",
            safe="No agent is affected.",
            mend=_MEND,
            repair="raise the registry's counter above everything that was handed out",
            subject="sequence",
        )


def history_holds(site: Site) -> Iterator[Finding]:
    """Every line of the history is a tombstone."""
    try:
        lines = fs.read_tail(site.paths.history, 64 * 1024 * 1024).count(b"\n") if site.paths.history.exists() else 0
        stones = len(site.context.registry.history())
    except StateError as error:
        yield Finding(
            code="history-unreadable",
            severity=Severity.PROBLEM,
            what=error.message,
            safe="It is left as it is; live agents are not affected.",
            mend=f"Check who may read {site.paths.history}, then run `side-agents doctor` again.",
        )
        return
    blank = _blank_lines(site.paths.history)
    if lines - blank > stones:
        yield Finding(
            code="history-lines",
            severity=Severity.NOTE,
            what=f"{lines - blank - stones} of {lines} lines of the history cannot be read and are passed over.",
            safe="They are kept as they are.",
            mend="`side-agents list --all` shows the agents of the other lines.",
        )


def _blank_lines(path: Path) -> int:
    return sum(not line.strip() for line in fs.read_slice(path, 0, 64 * 1024 * 1024).split(b"\n")[:-1])


def lock_files(site: Site) -> list[Path]:
    """Every lock of this repository that names its holder."""
    found = [*site.paths.meta.glob("*.lock"), *site.paths.meta.glob("runtime/*/send.lock")]
    found += site.common_dir.glob("side-agents-*.lock")
    found += [path for slot in site.slots for path in (slot.path / ".pi" / "side-agents").glob("*.lock")]
    return sorted(found)


def locks_are_free(site: Site) -> Iterator[Finding]:
    """Nobody holds a lock for long, and no dead holder's name is left in one."""
    for path in lock_files(site):
        holder = fs.lock_holder(path)
        if holder is None or not isinstance(holder.get("pid"), int):
            continue
        who = (
            f"process {holder['pid']} ({holder.get('command')}) for {holder.get('purpose')} since {holder.get('since')}"
        )
        if holder.get("host") not in (None, os.uname().nodename):
            yield Finding(
                code="lock-elsewhere", severity=Severity.NOTE, what=f"{path.name} names {who} on {holder.get('host')}."
            )
        elif processes.is_alive(holder_of(holder)):
            if _age(holder.get("since")) > _HELD_LONG:
                yield _held(path, who)
        else:
            yield Finding(
                code="lock-text",
                severity=Severity.NOTE,
                what=f"{path.name} still names {who}, which has ended.",
                safe="The lock itself was freed with its holder's end; nobody waits for it.",
                mend=_MEND,
                repair=f"take {path.name} for a moment, which clears the name",
                subject=path.name,
                place=path,
            )
    if finish_record.is_unsettled(site.paths) and not _is_merging(site):
        yield Finding(
            code="landing-cut-off",
            severity=Severity.PROBLEM,
            what="A landing was cut off after it had moved the branch: that branch's checkout looks as if it were undone.",
            safe="The landed commits are on the branch; git refuses where local changes are in the way.",
            mend="side-agents doctor --repair (the next `side-agents finish` does the same)",
            repair="bring that checkout's files to the branch, as the landing would have",
            subject=finish_record.INTENT_FILE,
        )


def _held(path: Path, who: str) -> Finding:
    is_merge = path.name == "merge.lock"
    return Finding(
        code="merge-lock-held" if is_merge else "lock-held",
        severity=Severity.NOTE if is_merge else Severity.WARNING,
        what=f"{path.name} is held by {who}, which is alive.",
        safe="It is freed when that process ends, however it ends; never remove the file.",
        mend="Wait for it; if it hangs, end it by its pid, then run `side-agents doctor` again.",
        subject=path.name,
    )


def _is_merging(site: Site) -> bool:
    holder = fs.lock_holder(site.paths.merge_lock)
    return holder is not None and isinstance(holder.get("pid"), int) and processes.is_alive(holder_of(holder))


def holder_of(holder: dict[str, object]) -> ProcessRef:
    """The process that a lock names."""
    pid = holder["pid"]
    return ProcessRef(pid if isinstance(pid, int) else 0, str(holder.get("startedAt")))


def _age(since: object) -> float:
    try:
        return (clock.now() - clock.parse_iso(str(since))).total_seconds()
    except SideAgentsError:
        return 0.0


def leftover_files(site: Site) -> list[Path]:
    """Unfinished files of ours in every folder that we write to."""
    meta = site.paths.meta
    folders = [meta, site.paths.shared, site.common_dir / "info", *sorted(meta.glob("runtime/*"))]
    folders += [meta / "sessions", *sorted(meta.glob("sessions/*")), meta / "queue", meta / "prompts"]
    folders += [slot.path / ".pi" for slot in site.slots]
    return [path for folder in folders for path in fs_survey.leftovers(folder, older_than=OLD_SECONDS)]


def nothing_is_left_over(site: Site) -> Iterator[Finding]:
    """No unfinished file of a write that was killed."""
    for path in leftover_files(site):
        yield Finding(
            code="temp-file",
            severity=Severity.NOTE,
            what=f"{path.name} in {path.parent} is what a killed write left.",
            safe="The file that it was to replace is whole.",
            mend=_MEND,
            repair=f"remove {path.name}",
            subject=path.name,
            place=path,
        )


def folder_is_private(site: Site) -> Iterator[Finding]:
    """The state folder, which holds prompts and logs, is ours and closed to others."""
    fault = fs_survey.access_fault(site.paths.meta)
    if fault == "open":
        yield Finding(
            code="permissions",
            severity=Severity.WARNING,
            what=f"{site.paths.meta}, which holds prompts and logs, may be entered by other users.",
            safe="Nothing has to be rewritten.",
            mend=_MEND,
            repair="take the permissions of others from the folder (mode 0700)",
            subject="side-agents",
            place=site.paths.meta,
        )
    elif fault is not None:
        why = "belongs to another user" if fault == "foreign" else "cannot be written by you"
        yield Finding(
            code="permissions-foreign",
            severity=Severity.PROBLEM,
            what=f"{site.paths.meta} {why}.",
            safe="Nothing was changed.",
            mend="Have its owner give it to you (chown -R), then run `side-agents doctor` again.",
        )
