"""What the use cases take and give: plain values that the command line, the tools and later front ends render."""

from __future__ import annotations

from dataclasses import dataclass

from side_agents.models import AgentRecord, DeliveryState, Tombstone

TASK_PREVIEW = 200
BACKLOG_LINES = 10
# Evidence of a delivery that says no more than the delivery's state does.
REPORTED_TAKEN = "the agent reported that it took the message"
REPORTED_QUEUED = "the agent is busy and has it in its queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """The conversation that a start goes on with, and what is known of the agent that held it.

    ``takes_branch`` False gives it a fresh branch. ``directory`` is where it was held. ``fork`` copies it even there.
    ``depth`` None: nothing is known of who had started it. ``base_commit`` is where its branch had begun.
    """

    agent_id: str
    takes_branch: bool
    session_file: str
    directory: str
    fork: bool = False
    base_commit: str | None = None
    model: str | None = None
    parent_agent_id: str | None = None
    depth: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What a person's conversation hands over with a task.

    ``has_messages`` False: nothing was said in it yet, so that there is nothing to look up. ``summary`` is what a model
    found to bear on the task, as it wrote it; ``summary_failed``: it was asked and could not say.
    """

    has_messages: bool = True
    summary: str = ""
    summary_failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """One agent to start.

    ``branch_hint`` wins over the slug of the task. ``base`` is a revision in the caller's checkout, by default HEAD.
    ``with_changes`` carries the caller's uncommitted work over. ``session`` names the caller's conversation.
    ``queued`` is the token of an entry of the queue that this start comes from. With ``resume`` no prompt is sent: the
    agent goes on with a conversation. ``handover`` is there when a person started it from a conversation. ``warnings`` are
    what its caller has to add to those of the start.
    """

    task: str
    branch_hint: str = ""
    client: str | None = None
    model: str | None = None
    base: str | None = None
    with_changes: bool = False
    session: str | None = None
    resume: Resume | None = None
    queued: str | None = None
    handover: Handover | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """A running agent; its record holds window, worktree, branch and warnings."""

    record: AgentRecord
    prompt: str


@dataclass(frozen=True, slots=True)
class Checked:
    """One agent: its record, or its tombstone when it has left the registry, and the last lines that it showed.

    ``lingers``: it failed or crashed, and its window is still there.
    """

    record: AgentRecord | None
    tombstone: Tombstone | None
    backlog: tuple[str, ...] = ()
    lingers: bool = False


@dataclass(frozen=True, slots=True)
class Waited:
    """The agent that reached a wanted state, why it was returned, and the cursor to pass as ``after`` next time."""

    checked: Checked
    reason: str
    cursor: int


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one message; ``evidence`` says how that is known."""

    agent_id: str
    state: DeliveryState
    evidence: str


@dataclass(frozen=True, slots=True)
class Listed:
    """All agents of the registry, in tree order with their depth below the root, and, if asked for, those that left.

    ``unreadable`` names rows that this version cannot read. ``notes`` are things to know, such as a tmux that gave no
    answer. ``paused`` are the ids among the tombstones that quit with work that has not landed and can be resumed.
    ``lingering`` are the ids of those that failed or crashed and whose window is still there: the recorded number of any
    other such agent may be another agent's by now.
    """

    records: tuple[AgentRecord, ...]
    tombstones: tuple[Tombstone, ...] = ()
    unreadable: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    paused: frozenset[str] = frozenset()
    lingering: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Stopped:
    """What a stop ended and what it kept; ``survivors`` are processes that could not be ended."""

    tombstone: Tombstone
    ended_processes: int
    kept: str
    survivors: tuple[int, ...] = ()
