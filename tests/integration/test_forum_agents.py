"""Four agents of a project talk in one thread: started by tool, waiting, killed and resumed, nested (issue 5)."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from many_support import CHECKOUT, PROGRAM, environment, run
from orchestra import SLOW, Orchestra, orchestra

from side_agents.forum.client import settings
from side_agents.forum.client.worker_document import secrets_of
from side_agents.forum.client.worker_file import read_document
from side_agents.forum.service.forum import Forum
from side_agents.forum.store.database import Database
from side_agents.models import AgentRecord, AgentStatus, ForumIdentity
from side_agents.paths import pi_folder
from side_agents.tools import calls
from tests.support.forum import ORIGIN, check
from tests.support.forum_client import FREE
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

TOOL = f"PYTHONPATH={shlex.quote(str(CHECKOUT))} {shlex.join(PROGRAM)} tool"
# A credential, whoever's it is, or a piece of any private file.
SECRET = re.compile(rb'af_[A-Za-z0-9_-]{43}|"pendingSpawns"')


@contextmanager
def serving(stage: Orchestra) -> Iterator[str]:
    """The project's forum as a server of its own; its address."""
    # A temporary folder may well be in memory.
    command = [*PROGRAM, "forum", "serve", "--json", "--port", "0", "--allow-tmpfs"]
    process = subprocess.Popen(command, cwd=stage.cwd, env=environment(stage), stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], SLOW)[0], "the server said nothing"
        yield json.loads(process.stdout.readline())["address"]
    finally:
        process.terminate()
        process.communicate(timeout=SLOW)


def prefer(stage: Orchestra, server: str) -> None:
    path = settings.defaults_path(pi_folder(stage.environment))
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**FREE, "serverUrl": server}), encoding="utf-8")


@pytest.fixture(params=["no server", "a server"])
def stage(request: pytest.FixtureRequest, repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        made.configure(forum=True)
        if request.param == "no server":
            prefer(made, settings.LOCAL)
            yield made
        else:
            with serving(made) as address:
                prefer(made, address)
                yield made
        with Database.open(made.context.paths.forum_db, create=False) as database:
            check(Forum(database, origin=ORIGIN))


def call(stage: Orchestra, tool: str, **values: Any) -> dict[str, Any]:
    """What a tool answers the session at this stage, which keeps its front end warm."""
    answer, _ = calls.call(tool, json.dumps(values), lambda: stage.context)
    assert answer["ok"], answer
    return answer


def step(tool: str, into: Path, **values: Any) -> str:
    """The line that makes a script agent call a tool; the answer is on its screen and in a file."""
    return f"run: echo {shlex.quote(json.dumps(values))} | {TOOL} {tool} | tee {shlex.quote(str(into))}"


def begun(stage: Orchestra, name: str, *steps: str) -> AgentRecord:
    """An agent that was started by tool."""
    answer = call(stage, "agent-start", description="\n".join(steps), branchHint=name, client="script")
    assert (answer["id"], answer["warnings"]) == (name, [])
    return stage.row(name)


def say(stage: Orchestra, name: str, *steps: str) -> None:
    call(stage, "agent-send", id=name, prompt="\n".join(steps))


def said(path: Path) -> dict[str, Any]:
    """The answer that an agent got; it may still be waiting for it."""

    def look() -> dict[str, Any] | None:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return json.loads(text) if text.endswith("\n") else None

    answer = eventually(look, SLOW)
    assert answer is not None
    assert answer["ok"], answer
    return answer


def posts_in(answer: dict[str, Any]) -> list[str]:
    return [each["postId"] for each in answer["references"]]


def who(record: AgentRecord) -> ForumIdentity:
    assert record.forum is not None, record.warnings
    return record.forum


def kill(stage: Orchestra, record: AgentRecord) -> None:
    """End an agent and its window, so that none of its programs can do anything about it."""
    client = stage.event(record, "client")["pid"]
    [pane] = [pane for pane in stage.panes() if pane.agent_tag == record.id]
    os.kill(pane.pane_pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        # Unless it has gone with its window.
        os.kill(client, signal.SIGKILL)
    stage.eventually_status(record.id, AgentStatus.CRASHED, AgentStatus.FAILED)


def leaks(stage: Orchestra) -> set[str]:
    """Every place outside of the private files where a secret is in sight now."""
    texts: dict[str, bytes] = {}
    home = Path(stage.environment["HOME"])
    for folder in (home, stage.repo.path.parent):
        texts |= {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    private = {path: read_document(Path(path)) for path in texts if path.endswith("/worker.json")}
    assert all(Path(path).is_relative_to(home) for path in private)
    assert len(private) > 1
    for path, document in private.items():
        assert all(SECRET.fullmatch(secret.encode()) for secret in secrets_of(document))
        assert SECRET.search(texts.pop(path))
    for pane in stage.panes():
        command = ["tmux", "-S", str(stage.server.tmux.socket), "capture-pane", "-pJ", "-S", "-", "-t", pane.pane_id]
        texts[f"pane of {pane.agent_tag}"] = subprocess.run(command, capture_output=True, check=True, timeout=20).stdout
    for pid in stage.processes():
        for name in ("environ", "cmdline"):
            try:
                texts[f"{pid}/{name}"] = Path(f"/proc/{pid}/{name}").read_bytes()
            except OSError:
                # It has ended meanwhile.
                continue
    objects = ["git", "cat-file", "--batch", "--batch-all-objects"]
    texts["git"] = subprocess.run(objects, cwd=stage.repo.path, capture_output=True, check=True, timeout=60).stdout
    return {where for where, text in texts.items() if SECRET.search(text)}


def rows(stage: Orchestra, query: str) -> list[tuple[Any, ...]]:
    with Database.open(stage.context.paths.forum_db, create=False) as database:
        return database.read(lambda connection: list(connection.execute(query)))


def ledger(stage: Orchestra) -> list[tuple[Any, ...]]:
    """All posts in their order: id, author, text, what it answers."""
    columns = "p.id, a.name, p.body, p.reply_to"
    return rows(stage, f"SELECT {columns} FROM post p JOIN agent a ON a.id = p.author_id ORDER BY p.created_seq")


def assert_family(stage: Orchestra, people: list[AgentRecord]) -> str:
    """There is the main session, three agents of its, the last one's agent, and nobody else; the main session's name."""
    family = "SELECT a.name, p.name, a.cause_kind, a.session_id FROM agent a LEFT JOIN agent p ON p.id = a.parent_id"
    (main, *root), *born = rows(stage, f"{family} ORDER BY a.ordinal")
    assert root[:2] == [None, "root"]
    parents = [main, main, main, who(people[2]).name]
    assert born == [
        (who(person).name, parent, "spawn", who(person).session_id)
        for person, parent in zip(people, parents, strict=True)
    ]
    return str(main)


def test_agents_discuss_in_a_thread_while_one_waits_one_is_killed_and_resumed_and_one_is_nested(
    stage: Orchestra, tmp_path: Path
) -> None:
    folder = tmp_path / "said"
    folder.mkdir()
    assert run(stage, "forum", "subforum", "create", "lab", "The lab").status == 0
    topic = call(stage, "forum_post", subforum="lab", title="Who does what?", body="main: say what you take")
    thread = topic["threadId"]

    def watch(name: str) -> str:
        return step("forum_watch", folder / name, threadId=thread)

    def post(name: str, body: str, **more: str) -> str:
        return step("forum_post", folder / name, threadId=thread, body=body, **more)

    alice = begun(stage, "alice", watch("alice-watch"), post("alice-1", "alice: the parser"))
    first = said(folder / "alice-1")["postId"]
    # Time and again, for a slow machine may need more than the longest wait until somebody posts.
    wait = step("forum_watch", folder / "bob-wait", waitSeconds=60).removeprefix("run: ")
    waits = f"run: until {wait} | tee /dev/stderr | grep -q '\"timedOut\": *false'; do :; done"
    bob = begun(stage, "bob", watch("bob-watch"), waits, post("bob-1", "bob: then I take the tests"))
    waiting = stage.context.paths.wait_lock("any").parent
    eventually(lambda: waiting.is_dir() and any(waiting.iterdir()), SLOW)
    assert leaks(stage) == set()
    carol = begun(stage, "carol", post("carol-1", "carol: the printer", replyTo=first))
    second = said(folder / "carol-1")["postId"]
    third = said(folder / "bob-1")["postId"]
    woken = said(folder / "bob-wait")
    assert (posts_in(woken), woken["timedOut"]) == ([second], False)

    stage.eventually_idle("alice")
    say(stage, "alice", step("forum_watch", folder / "alice-seen", waitSeconds=0))
    seen = said(folder / "alice-seen")
    assert posts_in(seen) == [second, third]
    kill(stage, alice)
    stage.eventually_idle("carol")
    task = {"description": post("dave-1", "dave: carol sent me"), "branchHint": "dave", "client": "script"}
    say(stage, "carol", f"write: dave.json {json.dumps(task)}", f"run: {TOOL} agent-start < dave.json")
    fourth = said(folder / "dave-1")["postId"]
    dave = stage.row("dave")

    # A crashed agent keeps its worktree for whoever wants to look at it, until it is cleared away.
    stage.stop("alice")
    again = run(stage, "resume", "alice", "--json").json
    assert again["ok"], again
    back = stage.eventually_idle(again["id"])
    after = step("forum_watch", folder / "alice-new", waitSeconds=0, afterSequence=seen["afterSequence"])
    say(stage, back.id, after, post("alice-2", "alice: I am back"))
    fifth = said(folder / "alice-2")["postId"]
    assert posts_in(said(folder / "alice-new")) == [fourth]
    assert back.forum == alice.forum

    assert leaks(stage) == set()
    people = [alice, bob, carol, dave]
    one, two, three, four = (who(record).name for record in people)
    main = assert_family(stage, people)
    assert ledger(stage) == [
        (topic["postId"], main, "main: say what you take", None),
        (first, one, "alice: the parser", None),
        (second, three, "carol: the printer", first),
        (third, two, "bob: then I take the tests", None),
        (fourth, four, "dave: carol sent me", None),
        (fifth, one, "alice: I am back", None),
    ]
    watches = rows(stage, "SELECT session_id, thread_id FROM thread_watch")
    assert set(watches) == {(who(record).session_id, thread) for record in (alice, bob)}
