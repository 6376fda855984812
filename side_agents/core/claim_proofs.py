"""Proofs for branches, leases, records and windows: what claims something, and whether that claim is over."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from side_agents import names
from side_agents.core import leases, observe, slot_proof, stop
from side_agents.core.context import Context
from side_agents.core.verdicts import Reason, Target, Verdict, could_not_look, refuse
from side_agents.errors import SideAgentsError
from side_agents.infra import clock, git_work, processes, processes_open
from side_agents.infra.git import AGENT_REFS, Git
from side_agents.infra.tmux import Outcome, PaneInfo, Sweep, Tmux
from side_agents.models import AgentRecord, AgentStatus, EndedBy, Lease
from side_agents.paths import lease_path

CLEARABLE = (AgentStatus.FAILED, AgentStatus.CRASHED)
_AGAIN = "Look again: side-agents clean --dry-run"


def prove_branch(context: Context, target: Target) -> Verdict:
    """Whether a side-agent branch can go: its work is in the target, nobody has it, no agent is called like it."""
    branch, ref, git = target.name, f"refs/heads/{target.name}", Git(context.paths.root)
    try:
        commit = git.resolve(ref)
        if not ref.startswith(AGENT_REFS):
            return refuse(
                target, Reason("not-ours", f"{branch} is not a side agent's branch.", f"git branch -d {branch}")
            )
        if commit is None or git.run("symbolic-ref", "--quiet", ref, check=False).returncode == 0:
            return refuse(target, Reason("missing", f"{branch} is no branch that holds a commit.", _AGAIN))
        reasons = list(_branch_claims(context, git, branch))
        if target.token not in (None, commit):
            reasons.append(Reason("moved", f"{branch} has moved since it was looked at.", _AGAIN))
        how = git_work.landed(git, commit, slot_proof.targets_of(context, git))
        if how is None:
            advice = f"Land it, or delete it yourself: git branch -D {branch}"
            reasons.append(Reason("unmerged", f"{branch} has commits that are not proven to have landed.", advice))
    except (SideAgentsError, OSError) as error:
        return refuse(target, could_not_look(branch, error))
    return Verdict(target, tuple(reasons), f"{how}, a rescue ref at {commit[:12]}" if not reasons else "")


def _branch_claims(context: Context, git: Git, branch: str) -> Iterator[Reason]:
    for entry in git.worktrees():
        if entry.branch == branch:
            advice = f"Let the slot go first, or switch it: git -C {entry.path} checkout --detach"
            yield Reason("checked-out", f"{branch} is checked out in {entry.path.name}.", advice)
    state = context.registry.read()
    agent_id = names.id_of_branch(branch)
    holding = {record.id for record in state.agents.values() if record.branch == branch}
    for name in sorted(holding | ({agent_id} & state.ids if agent_id else set())):
        yield Reason("tracked", f"{branch} is that of agent {name}.", f"Clear it first: side-agents stop {name}")
    yield from slot_proof.stash_faults(git, branch)


def prove_lease(context: Context, target: Target) -> Verdict:
    """Whether the lease of a slot is an orphan's: its agent unknown, nobody alive (F-O1 to F-O5).

    ``token`` is the lease's text when it was first looked at.
    """
    slot = target.path
    try:
        lease = leases.read(slot) if slot is not None else None
        if slot is None or lease is None:
            return refuse(target, Reason("missing", f"{target.name} has no lease any more.", _AGAIN))
        reasons = list(_lease_claims(context, slot, lease))
        if target.token not in (None, lease_text(slot)):
            reasons.append(Reason("changed", f"The lease of {target.name} has changed since it was looked at.", _AGAIN))
    except (SideAgentsError, OSError) as error:
        return refuse(target, could_not_look(f"The lease of {target.name}", error))
    return Verdict(target, tuple(reasons), "" if reasons else "the slot, its branch and its files stay")


def lease_text(slot: Path) -> str | None:
    """The lease as it stands in its file; None when it cannot be read."""
    path = lease_path(slot)
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return None


def _lease_claims(context: Context, slot: Path, lease: Lease) -> Iterator[Reason]:
    name = slot.name
    if names.slot_number(context.paths.root, slot) is None or slot.is_symlink():
        yield Reason("not-ours", f"{slot} is not a slot of this repository.", "Leave it.")
        return
    state = context.registry.read()
    rows = {record.id for record in state.agents.values() if record.worktree_path == str(slot)}
    for holder in sorted(rows | ({lease.agent_id} & state.ids if lease.agent_id else set())):
        yield Reason("tracked", f"{name} is that of agent {holder}.", f"Clear it first: side-agents stop {holder}")
    if lease.pid is not None and lease.pid > 0 and processes.identify(lease.pid) is not None:
        advice = f"If that process is not the agent's, remove the file: rm {lease_path(slot)}"
        yield Reason("pid-alive", f"Process {lease.pid}, named in the lease of {name}, is alive.", advice)
    for user in processes_open.users_of(slot)[:3]:
        yield Reason("in-use", f"Process {user.pid} {user.doing}: {name}.", f"Let it leave, or end it: kill {user.pid}")
    yield from _window_claims(context, name, lease)


def _window_claims(context: Context, name: str, lease: Lease) -> Iterator[Reason]:
    window = lease.tmux_window_id
    if window is None and lease.agent_id is None:
        return
    for socket, sweep in sweeps(context).items():
        if sweep.server is None:
            if sweep.outcome is Outcome.NO_ANSWER or _server_lives(context, socket):
                advice = "Mend tmux, then clean again."
                yield Reason("tmux-silent", f"The tmux server at {socket} gave no answer about {name}.", advice)
            continue
        if _is_younger(sweep, lease):
            continue
        for pane in sweep.panes.values():
            if pane.agent_tag == (lease.agent_id or "-") or (pane.window_id == window and not pane.agent_tag):
                advice = f"Close it if it is over: tmux kill-pane -t {pane.pane_id}"
                yield Reason("window", f"Window {pane.window_id} of the lease of {name} is still open.", advice)
                break


def _is_younger(sweep: Sweep, lease: Lease) -> bool:
    """Whether the server surely started after the lease was written, so that its ids mean something else."""
    began = processes_open.started_at(sweep.server) if sweep.server is not None else None
    try:
        return began is not None and began > clock.parse_iso(lease.started_at).timestamp() + 2.0
    except SideAgentsError:
        return False


def _server_lives(context: Context, socket: Path) -> bool:
    servers = [row.tmux_server for row in context.registry.read().agents.values() if row.tmux_socket == str(socket)]
    own, _, pid = context.environment.get("TMUX", "").rpartition(",")[0].rpartition(",")
    if own == str(socket) and pid.isdigit() and processes.identify(int(pid)) is not None:
        return True
    return any(server is not None and processes.is_alive(server) for server in servers)


def sweeps(context: Context) -> dict[Path, Sweep]:
    """One look at each tmux server that agents of this repository may be in: the caller's and those of the records."""
    sockets = {Path(row.tmux_socket) for row in context.registry.read().agents.values() if row.tmux_socket}
    own = context.environment.get("TMUX", "").rpartition(",")[0].rpartition(",")[0]
    sockets |= {Path(own)} if own else set()
    default = Path(context.environment.get("TMUX_TMPDIR") or "/tmp") / f"tmux-{os.getuid()}" / "default"
    sockets |= {default} if default.exists() else set()
    return {socket: Tmux(socket).sweep() for socket in sorted(sockets)}


def prove_record(context: Context, target: Target) -> Verdict:
    """Whether the record of a failed or crashed agent can be cleared. ``token`` is when that agent was started."""
    name = target.name
    try:
        record = observe.refresh(context, (name,)).state.agents.get(name)
        if record is None:
            return refuse(target, Reason("missing", f"{name} is not on the list any more.", _AGAIN))
        reasons = list(_record_claims(context, record))
        if target.token not in (None, record.started_at):
            reasons.append(Reason("changed", f"{name} has been started anew.", _AGAIN))
        kept = stop.kept_by(observe.entomb(context, record, EndedBy.CLEARED))
    except (SideAgentsError, OSError) as error:
        return refuse(target, could_not_look(f"Agent {name}", error))
    return Verdict(target, tuple(reasons), kept)


def _record_claims(context: Context, record: AgentRecord) -> Iterator[Reason]:
    if record.status not in CLEARABLE:
        advice = f"If you mean it: side-agents stop {record.id}"
        yield Reason("not-over", f"{record.id} has neither failed nor crashed: it is {record.status}.", advice)
        return
    launcher = record.launcher
    if launcher is not None and processes.is_alive(launcher) and not _has_marker(context, record):
        advice = f"End it with `side-agents stop {record.id}`; its work is kept."
        yield Reason("alive", f"Process {launcher.pid} of {record.id} still runs.", advice)


def _has_marker(context: Context, record: AgentRecord) -> bool:
    marker = context.paths.runtime(record.id).exit_marker
    return record.runtime_dir is not None and observe.read_marker(marker) is not None


def prove_window(context: Context, target: Target) -> Verdict:
    """Whether a pane is what an agent of this repository left when it ended: its launcher, waiting for a key.

    ``token`` is the agent's id. The tag alone proves nothing: another repository's agent may have the same one.
    """
    agent_id, name = target.token or "", target.name
    if target.socket is None:
        return refuse(target, Reason("missing", f"Window {name} is on no known tmux server.", _AGAIN))
    try:
        pane = Tmux(target.socket).sweep().panes.get(name)
        if pane is None or pane.agent_tag != agent_id:
            return refuse(target, Reason("missing", f"Window {name} is gone, or not that of {agent_id}.", _AGAIN))
        reasons = tuple(_pane_claims(context, pane))
    except (SideAgentsError, OSError) as error:
        return refuse(target, could_not_look(f"Window {name}", error))
    return Verdict(target, reasons, f"its output stays in {context.paths.runtime(agent_id).backlog}")


def _pane_claims(context: Context, pane: PaneInfo) -> Iterator[Reason]:
    agent_id, where = pane.agent_tag, f"The window of {pane.agent_tag}"
    runtime = context.paths.runtime(agent_id)
    if agent_id in context.registry.read().ids:
        yield Reason("tracked", f"Agent {agent_id} is on the list.", f"Clear it first: side-agents stop {agent_id}")
    if str(runtime.launcher) not in processes.command_line(pane.pane_pid):
        yield Reason(
            "not-ours", f"{where} does not run a launcher of this repository.", "Close it yourself if it is over."
        )
    if observe.read_marker(runtime.exit_marker) is None:
        yield Reason("not-over", f"Nothing shows that {agent_id} has ended.", f"side-agents stop {agent_id}")
    below = processes.descendants(pane.pane_pid)
    if below:
        advice = f"End it: kill {below[0].pid}"
        yield Reason("in-use", f"Process {below[0].pid} still runs in the window of {agent_id}.", advice)
    if pane.watched:
        yield Reason("watched", f"Somebody is looking at the window of {agent_id}.", "Press any key in it.")


def orphan_windows(context: Context, found: Iterable[Sweep]) -> list[PaneInfo]:
    """Panes with the tag of an agent that has left the list."""
    ids = context.registry.read().ids
    return [pane for sweep in found for pane in sweep.panes.values() if pane.agent_tag and pane.agent_tag not in ids]
