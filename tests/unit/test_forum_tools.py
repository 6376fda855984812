"""The four tools: shapes, bounds, nothing secret, one blocking wait for each turn (T087, T135-T141, T155, T209-T212)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from side_agents.core.context import Context, open_context
from side_agents.errors import RefusedError
from side_agents.forum import ids, limits
from side_agents.forum.client import settings
from side_agents.forum.client.locating import Asker, open_worker, state_of
from side_agents.forum.client.worker_document import secrets_of
from side_agents.forum.client.worker_file import read_document
from side_agents.infra.events import Wakeup
from side_agents.paths import pi_folder
from side_agents.tools import calls, forum_tools
from side_agents.tools.one_wait import only_wait
from side_agents.tools.schema_files import schema_of
from side_agents.tools.table import TOOLS
from tests.support.forum import sound_forums
from tests.support.forum_client import FREE, add_subforum, reference
from tests.support.repositories import Repository
from tests.support.waiting import eventually

__all__ = ["sound_forums"]

THREAD = ids.ulid("th")
FORUM = [name for name in TOOLS if name.startswith("forum_")]


class Caller:
    """One conversation that calls tools in this process."""

    def __init__(self, repo: Repository, home: Path, session: str) -> None:
        self.environment = {"HOME": str(home), "SIDE_AGENTS_SESSION": session}
        self.context: Context = open_context(repo.path, self.environment)

    def __call__(self, name: str, **values: Any) -> dict[str, Any]:
        answer, status = calls.call(f"forum_{name}", json.dumps(values), lambda: self.context)
        assert (status == 0) is answer["ok"], answer
        return answer

    @property
    def asker(self) -> Asker:
        return forum_tools._asker(self.context)


@pytest.fixture
def make(repo: Repository, home: Path) -> Callable[[str], Caller]:
    """Callers in one project, whose user lets them post in ``lab``."""
    defaults = settings.defaults_path(pi_folder({"HOME": str(home)}))
    defaults.parent.mkdir(parents=True)
    defaults.write_text(json.dumps(FREE), encoding="utf-8")
    first = Caller(repo, home, "founder")
    with open_worker(first.asker, purpose="test") as worker:
        worker.ensure_identity("founder")
        add_subforum(worker)
    return lambda session: Caller(repo, home, session)


def test_t209_t210_t211_a_conversation_by_tools(make: Callable[[str], Caller]) -> None:
    student, teacher = make("student"), make("teacher")
    opened = student("post", subforum="lab", title="Division", body="What is 7 / 2 in C?")
    assert set(opened) == {"ok", "outcome", "threadId", "postId", "url"}
    assert opened["outcome"] == "published"

    hits = teacher("search", text="division")["hits"]
    assert hits[0]["threadId"] == opened["threadId"]
    watched = teacher("watch", threadId=hits[0]["threadId"], waitSeconds=0)
    assert watched["watching"] is True
    page = teacher("read", threadId=opened["threadId"])
    assert "7 / 2" in page["posts"][0]["body"]
    assert page["pageInfo"] == {"nextCursor": None, "hasMore": False}

    reply = teacher("post", threadId=opened["threadId"], body="3", replyTo=opened["postId"])
    news = student("watch", waitSeconds=5)
    assert [each["postId"] for each in news["references"]] == [reply["postId"]]
    assert news["afterSequence"] == news["references"][-1]["sequence"]
    silence = student("watch", waitSeconds=0, afterSequence=news["afterSequence"])
    assert (silence["references"], silence["timedOut"], silence["afterSequence"]) == ([], True, news["afterSequence"])


def test_t136_t137_a_thread_alone_sets_the_watch_and_false_removes_it(make: Callable[[str], Caller]) -> None:
    caller = make("a")
    thread = caller("post", subforum="lab", title="t", body="x")["threadId"]

    assert caller("watch", threadId=thread) == {"ok": True, "watching": True}
    assert caller("watch", threadId=thread, watching=False) == {"ok": True, "watching": False}
    assert "watching" not in caller("watch")


def test_t148_a_watch_that_fails_is_told_and_nothing_is_waited_for(make: Callable[[str], Caller]) -> None:
    answer = make("a")("watch", threadId=THREAD, waitSeconds=60)
    assert (answer["ok"], answer["code"]) == (False, "not_found")


def test_t087_i50_no_schema_takes_a_secret_and_no_answer_has_one(make: Callable[[str], Caller]) -> None:
    caller = make("a")
    posted = caller("post", subforum="lab", title="t", body=f"my secret is {ids.new_credential()}")
    shown = json.dumps([
        posted, caller("read", threadId=posted["threadId"]), caller("search", text="secret"), caller("watch"),
        caller("read", threadId=THREAD), caller("post", threadId=THREAD, body="x"),
    ], ensure_ascii=False)  # fmt: skip
    state = state_of(caller.asker)

    assert "credential" not in json.dumps([schema_of(TOOLS[name]) for name in FORUM]).lower()
    assert "af_" in shown
    assert not any(secret in shown for secret in secrets_of(read_document(state)))
    assert "my secret is af_…" in shown
    assert str(state.parent) not in shown


def test_t180_read_only_and_t185_approval_without_a_dialog_refuse(
    make: Callable[[str], Caller], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = settings.defaults_path(pi_folder({"HOME": str(home)}))
    for mode, words in (("read-only", "read-only"), ("approval", "nobody to ask")):
        defaults.write_text(json.dumps({"postingMode": mode}), encoding="utf-8")
        answer = make(mode)("post", subforum="lab", title="t", body="x")
        assert (answer["ok"], answer["outcome"]) == (False, "refused")
        assert words in answer["error"]


def test_a_definite_refusal_and_an_unknown_outcome_name_the_publication(
    make: Callable[[str], Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    from side_agents.errors import ForumError
    from side_agents.forum.client.publication import Outcome
    from side_agents.forum.client.worker import Worker

    lost = ForumError("No answer.", forum_code="no_answer", status=0, retryable=True)
    outcomes = [Outcome("pb_1", error=lost), Outcome("pb_2", error=lost, is_definite=True)]
    monkeypatch.setattr(Worker, "publish", lambda *_, **__: outcomes.pop(0))
    caller = make("a")
    unknown = caller("post", subforum="lab", title="t", body="x")
    refused = caller("post", subforum="lab", title="t", body="x")

    assert (unknown["outcome"], unknown["publicationId"], unknown["code"]) == ("unknown", "pb_1", "no_answer")
    assert "Do not post it again" in unknown["hint"]
    assert (refused["outcome"], refused["publicationId"]) == ("refused", "pb_2")
    assert "discard pb_2" in refused["hint"]


@pytest.mark.parametrize(
    ("name", "values", "fix"),
    [
        ("search", {}, "text"), ("search", {"text": " "}, "words"), ("search", {"text": "é" * 257}, "fewer"),
        ("search", {"text": "x", "limit": 5}, "limit"), ("search", {"text": 5}, "text"),
        ("read", {}, "threadId"), ("read", {"threadId": "42"}, "th_"), ("read", {"threadId": THREAD, "after": 1}, "after"),
        ("read", {"threadId": THREAD, "cursor": "6"}, "nextCursor"), ("read", {"threadId": THREAD, "cursor": 6}, "cursor"),
        ("post", {"threadId": THREAD}, "body"), ("post", {"body": "x"}, "threadId"),
        ("post", {"body": "x", "threadId": THREAD, "subforum": "lab"}, "Leave out"),
        ("post", {"body": "x", "threadId": THREAD, "title": "t"}, "Leave out"),
        ("post", {"body": "x", "subforum": "lab"}, "title"), ("post", {"body": "x", "threadId": "6"}, "th_"),
        ("post", {"body": "x", "credential": "af_"}, "credential"),
        ("watch", {"watching": True}, "threadId"), ("watch", {"watching": False, "waitSeconds": 5}, "threadId"),
        ("watch", {"waitSeconds": 61}, "0 to 60"), ("watch", {"waitSeconds": -1}, "0 to 60"),
        ("watch", {"waitSeconds": "30"}, "waitSeconds"), ("watch", {"waitSeconds": 1.5}, "waitSeconds"),
        ("watch", {"waitSeconds": True}, "waitSeconds"),
        ("watch", {"afterSequence": 42}, "afterSequence"), ("watch", {"afterSequence": "x"}, "decimal digits"),
        ("watch", {"threadId": "42"}, "th_"), ("watch", {"threadId": THREAD, "watching": "yes"}, "watching"),
    ],
)  # fmt: skip
def test_t135_t155_t212_other_shapes_are_refused_with_a_message_that_names_the_fix(
    make: Callable[[str], Caller], name: str, values: dict[str, Any], fix: str
) -> None:
    answer = make("a")(name, **values)

    assert answer["ok"] is False
    assert fix in f"{answer['error']} {answer.get('hint')}", answer


def test_t155_a_number_as_cursor_asks_nobody(make: Callable[[str], Caller], monkeypatch: pytest.MonkeyPatch) -> None:
    from side_agents.forum.client.in_process import InProcessTransport

    caller = make("a")
    caller("search", text="x")
    monkeypatch.setattr(InProcessTransport, "send", lambda *_: pytest.fail("something was sent"))
    assert "sequence number" in caller("read", threadId=THREAD, cursor="6")["error"]


@pytest.mark.parametrize("size", [limits.QUERY_BYTES - 1, limits.QUERY_BYTES])
def test_t174_words_to_search_for_may_have_512_bytes(make: Callable[[str], Caller], size: int) -> None:
    assert make("a")("search", text="x" * size)["ok"]


def test_t165_a_full_list_is_told_and_what_the_agent_has_seen_makes_room(make: Callable[[str], Caller]) -> None:
    caller = make("a")
    caller("watch")

    def fill(draft: Any) -> None:
        draft["references"] = [reference(number) for number in range(1, 101)]

    with open_worker(caller.asker, purpose="test") as worker:
        worker.file.update(fill)
    full = caller("watch", waitSeconds=0)
    assert (len(full["references"]), full["backlog"]) == (20, True)
    assert "afterSequence" in full["note"]
    assert len(read_document(state_of(caller.asker))["references"]) == 100

    later = caller("watch", waitSeconds=0, afterSequence=full["afterSequence"])
    assert [each["sequence"] for each in later["references"]] == [str(number) for number in range(21, 41)]
    assert later["backlog"] is False
    assert len(read_document(state_of(caller.asker))["references"]) == 80


def test_each_conversation_is_somebody_else_and_stays_it(make: Callable[[str], Caller]) -> None:
    states = [state_of(make(session).asker) for session in ("a", "b", "a")]
    assert states[0] == states[2] != states[1]

    posts = [make(session)("post", subforum="lab", title="t", body="x")["threadId"] for session in ("a", "b", "a")]
    names = [make("c")("read", threadId=thread)["posts"][0]["authorName"] for thread in posts]
    assert names[0] == names[2] != names[1]


def test_an_agent_uses_exactly_the_file_that_it_was_handed(make: Callable[[str], Caller], tmp_path: Path) -> None:
    caller = make("a")
    caller.context = replace(
        caller.context, environment={**caller.environment, "AGENTFORUM_STATE": str(tmp_path / "w.json")}
    )
    assert caller("search", text="x")["code"] == "not-found"
    caller.context = replace(caller.context, environment={**caller.environment, "AGENTFORUM_STATE": "relative"})
    assert "absolute" in caller("search", text="x")["error"]
    assert list(tmp_path.glob("w.json*")) == []


def test_5_11_one_turn_is_held_up_by_one_wait_only(make: Callable[[str], Caller]) -> None:
    caller, other = make("a"), make("b")
    with only_wait(caller.context, "agents"):
        answer = caller("watch", waitSeconds=30)
        assert "agent-wait-any" in answer["error"]
        assert answer["code"] == "refused"
        assert caller("watch", waitSeconds=0)["ok"]
        assert other("watch", waitSeconds=1)["ok"]
        with only_wait(caller.context, "agents"):
            pass
    with only_wait(caller.context, "forum"):
        with pytest.raises(RefusedError, match="forum_watch"), only_wait(caller.context, "agents"):
            pass
        with only_wait(replace(caller.context, environment={}), "forum"):
            pass
    assert caller("watch", waitSeconds=1)["timedOut"]


def test_a_wait_ends_when_the_caller_of_a_warm_front_end_gives_up(make: Callable[[str], Caller]) -> None:
    caller = make("a")
    wakeup = Wakeup()
    caller.context = replace(caller.context, cancellation=wakeup)
    answers: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(caller("watch", waitSeconds=60)))
    thread.start()
    eventually((state_of(caller.asker).parent / "worker.lock").exists)
    wakeup.fire()
    thread.join(20)
    wakeup.close()

    assert answers[0]["timedOut"]


def test_the_first_call_in_a_project_keeps_the_forum_out_of_gits_status(repo: Repository, home: Path) -> None:
    assert Caller(repo, home, "first")("search", text="x")["ok"]

    assert (repo.path / ".pi/side-agents/forum/forum.db").exists()
    assert repo.status() == ""


def test_importing_the_table_loads_nothing_heavy() -> None:
    import subprocess
    import sys

    code = "import sys, side_agents.tools.table as t; print(' '.join(sys.modules))"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & {"apsw", "starlette", "pydantic", "httpx", "asyncio", "filelock"}
    assert not any(name.startswith("side_agents.forum") for name in loaded)
