"""The forum against an oracle of plain dicts: random histories, with every answer about events and progress compared.

Covers the 15 rules of reference/forum.md 5.6 (invariants 13-17, 27-33) and the progress values of 1.3, together.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from side_agents.forum import limits, scopes
from side_agents.forum.requests import Inherit, ReplyRequest
from side_agents.forum.service.forum import Forum
from side_agents.forum.store import interests
from side_agents.forum.store.database import Database
from tests.support.forum import ORIGIN, Person, check, command, json_of, refusal
from tests.support.forum_oracle import Oracle, PlannedThread
from tests.support.forum_talk import Talk

SUBFORUMS = ("alpha", "beta")
# Few of each, so that what happens to one meets what happens to another.
MOST_PEOPLE = 5
MOST_THREADS = 4
SCOPES = [frozenset(chosen) for size in (1, 2, 3) for chosen in combinations(scopes.TOKENS, size)]
TOKENS = st.sampled_from(SCOPES)


@dataclass(frozen=True)
class Chain:
    """Where a chain of pages stands, and what it has delivered since its floor."""

    cursor: str
    session: str
    scope: frozenset[str]
    floor: int
    after: int
    delivered: frozenset[int]


@dataclass
class Plan:
    """A plan of the forum and what the oracle expects of it."""

    id: str
    owner: Person
    threads: list[PlannedThread]

    def stretch(self, begin: int, end: int) -> dict[str, tuple[int, int, int]]:
        """For each thread of posts ``begin`` to ``end``: its lower bound, what must be read before, and up to where it goes."""
        found: dict[str, tuple[int, int, int]] = {}
        position = 0
        for thread in self.threads:
            before = thread.lower
            for post in thread.posts:
                if begin <= position < end:
                    start = found[thread.id][1] if thread.id in found else before
                    found[thread.id] = (thread.lower, start, post.sequence)
                before = post.sequence
                position += 1
        return found


@dataclass
class Receipt:
    """A receipt and the positions in its plan that its page covered."""

    plan: Plan
    id: str
    begin: int
    end: int


@dataclass
class Place:
    """A thread with its subforum and posts."""

    id: str
    subforum: str
    posts: list[str] = field(default_factory=list)


class ForumMachine(RuleBasedStateMachine):
    """Each rule does one thing to the forum and to the oracle and compares what both say."""

    people = Bundle("people")
    threads = Bundle("threads")
    chains = Bundle("chains")
    plans = Bundle("plans")
    receipts = Bundle("receipts")
    sent = Bundle("sent")

    def __init__(self) -> None:
        super().__init__()
        # In memory where there is such a place: what survives a power cut is tested elsewhere.
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="forum-machine-", dir=memory if memory.is_dir() else None))
        self.hours = 0
        self.everybody: list[Person] = []
        self.places: list[Place] = []
        self.oracle = Oracle()
        self.open()

    def open(self) -> None:
        database = Database.open(self.folder / "f" / "forum.db")
        self.talk = Talk(Forum(database, origin=ORIGIN, clock=lambda: 1_800_000_000_000 + self.hours * 3_600_000))
        self.forum = self.talk.forum

    def teardown(self) -> None:
        try:
            # Not after a failure, which would be hidden behind what follows from it.
            if sys.exc_info()[0] is None:
                self.compare_everything()
                check(self.forum)
        finally:
            self.forum.database.close()
            shutil.rmtree(self.folder)

    def compare_everything(self) -> None:
        """The end of a history: heirs, all that anybody could ask, plans acknowledged in the wrong order and then the right."""
        for person in tuple(self.everybody):
            self.spawn(person, subforums=True, threads=True)
        for person in self.everybody:
            for chosen in SCOPES:
                self.begin(person, chosen, "beginning", 3)
            for place in self.places:
                self.look(person, place)
            for scope in ("visited", "subscriptions", "all"):
                receipts = self.walk(self.make_plan(person, scope), 2)
            for receipt in (*reversed(receipts), *receipts):
                self.acknowledge_receipt(receipt)
        self.everybody_hears_what_is_meant_for_them()

    @initialize(target=people)
    def two_people(self) -> Any:
        founder = self.talk.person()
        for key in SUBFORUMS:
            self.talk.subforum(founder, key)
        self.everybody += [founder, self.talk.person()]
        return multiple(*self.everybody)

    # Who there is.

    @precondition(lambda self: len(self.everybody) < MOST_PEOPLE)
    @rule(target=people, parent=people)
    def compact(self, parent: Person) -> Person:
        child = self.talk.compacted(parent)
        assert child.session == parent.session
        self.everybody.append(child)
        return child

    @precondition(lambda self: len(self.everybody) < MOST_PEOPLE)
    @rule(target=people, parent=people, subforums=st.booleans(), threads=st.booleans())
    def spawn(self, parent: Person, subforums: bool, threads: bool) -> Person:
        child = self.talk.spawned(parent, inherit=Inherit(subforums=subforums, thread_watches=threads))
        wanted = {"subforum_watch": subforums, "thread_watch": threads}
        for relation, session, target in list(self.oracle.baselines):
            if session == parent.session and wanted.get(relation):
                self.oracle.relate(relation, child.session, target, self.oracle.tail)
        self.everybody.append(child)
        return child

    # What they say.

    @precondition(lambda self: len(self.places) < MOST_THREADS)
    @rule(target=threads, author=people, subforum=st.sampled_from(SUBFORUMS), watch=st.booleans())
    def start_thread(self, author: Person, subforum: str, watch: bool) -> Place:
        made = self.talk.thread(author, subforum, watch=watch)
        happened = self.oracle.happen("thread.created", author.session, subforum, made.thread, made.id)
        assert made.sequence == happened.sequence
        if watch:
            self.oracle.relate("thread_watch", author.session, made.thread, made.sequence)
        self.places.append(Place(made.thread, subforum, [made.id]))
        return self.places[-1]

    @rule(target=sent, author=people, place=threads)
    def reply(self, author: Person, place: Place) -> tuple[Any, ...]:
        request, key = ReplyRequest(body="words"), command()
        result = self.talk.content.reply(author.principal, place.id, request, command=key)
        made = json_of(result)
        happened = self.oracle.happen("post.created", author.session, place.subforum, place.id, made["postId"])
        assert int(made["sequence"]) == happened.sequence
        place.posts.append(made["postId"])
        return author, place, request, key, result.body

    @rule(again=sent)
    def retry(self, again: tuple[Any, ...]) -> None:
        author, place, request, key, body = again
        replay = self.talk.content.reply(author.principal, place.id, request, command=key)
        assert (replay.body, replay.replayed) == (body, True)

    @rule(actor=people, place=threads, choice=st.integers(0, 3), whole=st.booleans(), wanted=st.booleans())
    def pin(self, actor: Person, place: Place, choice: int, whole: bool, wanted: bool) -> None:
        pins, kind = self.forum.pins, "thread" if whole else "post"
        item = place.id if whole else place.posts[choice % len(place.posts)]
        acts: dict[tuple[bool, bool], Callable[..., dict[str, Any]]] = {
            (True, True): pins.pin_thread,
            (True, False): pins.unpin_thread,
            (False, True): pins.pin_post,
            (False, False): pins.unpin_post,
        }
        changed = wanted != (item in self.oracle.pinned)
        assert acts[whole, wanted](actor.principal, item) == {"pinned": wanted, "changed": changed}
        if not changed:
            return
        verb = "pinned" if wanted else "unpinned"
        self.oracle.happen(f"{kind}.{verb}", actor.session, place.subforum, place.id)
        (self.oracle.pinned.append if wanted else self.oracle.pinned.remove)(item)
        if not whole:
            listed = self.forum.pins.pinned_posts(actor.principal, place.id)["posts"]
            assert [post["id"] for post in listed] == [pin for pin in self.oracle.pinned if pin in place.posts]

    # What they care about.

    @rule(person=people, place=threads, wanted=st.booleans())
    def watch_thread(self, person: Person, place: Place, wanted: bool) -> None:
        api = self.forum.interests
        act = api.watch_thread if wanted else api.unwatch_thread
        self.compare_watch("thread_watch", person, place.id, act(person.principal, place.id))

    @rule(person=people, key=st.sampled_from(SUBFORUMS), wanted=st.booleans())
    def watch_subforum(self, person: Person, key: str, wanted: bool) -> None:
        api = self.forum.interests
        act = api.watch_subforum if wanted else api.unwatch_subforum
        self.compare_watch("subforum_watch", person, key, act(person.principal, key))

    def compare_watch(self, relation: str, person: Person, target: str, answer: dict[str, Any]) -> None:
        wanted = answer["watching"]
        if wanted:
            changed = self.oracle.relate(relation, person.session, target, self.oracle.tail)
            baseline = str(self.oracle.baselines[relation, person.session, target])
        else:
            changed = self.oracle.baselines.pop((relation, person.session, target), None) is not None
            baseline = None
        assert answer == {"watching": wanted, "baselineSequence": baseline, "changed": changed}

    @rule(person=people, place=threads, wanted=st.booleans())
    def mute(self, person: Person, place: Place, wanted: bool) -> None:
        api, entry = self.forum.interests, (person.session, place.id)
        act = api.mute_thread if wanted else api.unmute_thread
        changed = wanted != (entry in self.oracle.muted)
        assert act(person.principal, place.id) == {"muted": wanted, "changed": changed}
        (self.oracle.muted.add if wanted else self.oracle.muted.discard)(entry)
        if wanted:
            self.oracle.ever_muted.add(entry)

    @rule(person=people, place=threads)
    def visit_thread(self, person: Person, place: Place) -> None:
        changed = self.oracle.relate("thread_visit", person.session, place.id, 0)
        answer = self.forum.interests.visit_thread(person.principal, place.id)
        assert answer == {"visited": True, "baselineSequence": "0", "changed": changed}

    @rule(person=people, key=st.sampled_from(SUBFORUMS), observed=st.integers(0, 30), history=st.booleans())
    def visit_subforum(self, person: Person, key: str, observed: int, history: bool) -> None:
        def act() -> dict[str, Any]:
            return self.forum.interests.visit_subforum(
                person.principal, key, observed_sequence=str(observed), include_history=history
            )

        if observed > self.oracle.tail:
            refusal("future_sequence", act)
            return
        entry = ("subforum_visit", person.session, key)
        changed = self.oracle.relate(*entry, 0 if history else observed)
        if history and self.oracle.baselines[entry] > 0:
            self.oracle.baselines[entry], changed = 0, True
        baseline = str(self.oracle.baselines[entry])
        assert act() == {"visited": True, "baselineSequence": baseline, "changed": changed}

    # How far they are.

    @rule(person=people, place=threads, choice=st.integers(0, 9))
    def mark_read(self, person: Person, place: Place, choice: int) -> None:
        post = place.posts[choice % len(place.posts)]
        (sequence,) = [event.sequence for event in self.oracle.posts(place.id) if event.post == post]
        through = self.oracle.raise_read(person.session, place.id, sequence)
        answer = self.forum.interests.mark_read(person.principal, place.id, through_post_id=post)
        assert answer == {"readThrough": str(through), "unreadCount": self.oracle.unread(person.session, place.id)}

    @rule(person=people, scope=TOKENS, through=st.integers(0, 30))
    def acknowledge(self, person: Person, scope: frozenset[str], through: int) -> None:
        def act() -> dict[str, Any]:
            return self.forum.events.acknowledge(person.principal, scope=",".join(scope), through_sequence=str(through))

        if through > self.oracle.tail:
            refusal("future_sequence", act)
            return
        entry = (person.session, scope)
        self.oracle.acknowledged[entry] = max(self.oracle.acknowledged.get(entry, 0), through)
        assert act()["throughSequence"] == str(self.oracle.acknowledged[entry])

    # What they hear.

    @rule(
        target=chains,
        person=people,
        scope=TOKENS,
        start=st.sampled_from(("beginning", "beginning", "tail", "acknowledged")),
        limit=st.sampled_from((1, 2, 5, 100)),
    )
    def begin(self, person: Person, scope: frozenset[str], start: str, limit: int) -> Chain:
        tail, acknowledged = self.oracle.tail, self.oracle.acknowledged.get((person.session, scope), 0)
        after = {"beginning": 0, "tail": tail, "acknowledged": acknowledged}[start]
        page = self.forum.events.page(person.principal, scope=",".join(scope), start=start, limit=limit)
        return self.compare_page(page, Chain("", person.session, scope, after, after, frozenset()), limit)

    @rule(target=chains, person=people, chain=chains, limit=st.sampled_from((1, 2, 5, 100)))
    def go_on(self, person: Person, chain: Chain, limit: int) -> Any:
        def act() -> dict[str, Any]:
            return self.forum.events.page(
                person.principal, scope=",".join(sorted(chain.scope, reverse=True)), cursor=chain.cursor, limit=limit
            )

        if person.session != chain.session:
            refusal("invalid_cursor", act)
            return multiple()
        return self.compare_page(act(), chain, limit)

    def compare_page(self, page: dict[str, Any], chain: Chain, limit: int) -> Chain:
        expected = self.oracle.eligible(chain.session, chain.scope, chain.after)
        delivered = dict(list(expected.items())[:limit])
        has_more = len(expected) > limit
        through = max(delivered) if has_more else self.oracle.tail
        assert {int(event["sequence"]): event["reasons"] for event in page["events"]} == delivered
        assert [int(event["sequence"]) for event in page["events"]] == list(delivered)
        for event in page["events"]:
            known = self.oracle.activity[int(event["sequence"]) - 1]
            said = (event["type"], event["actor"]["sessionId"], event["threadId"], event["subforum"])
            assert said == (known.kind, known.session, known.thread, known.subforum)
        assert (page["hasMore"], page["scannedThrough"], page["timedOut"]) == (has_more, str(through), False)
        assert not chain.delivered & delivered.keys()
        seen = chain.delivered | delivered.keys()
        self.assert_no_loss(chain, through, seen)
        return Chain(page["nextCursor"], chain.session, chain.scope, chain.floor, through, seen)

    def assert_no_loss(self, chain: Chain, through: int, seen: frozenset[int]) -> None:
        """Invariant 28: what is of interest now and behind the cursor was delivered, unless its thread was muted then."""
        for sequence in self.oracle.eligible(chain.session, chain.scope, chain.floor):
            thread = self.oracle.activity[sequence - 1].thread
            assert sequence > through or sequence in seen or (chain.session, thread) in self.oracle.ever_muted

    # How they catch up.

    @rule(target=plans, person=people, scope=st.sampled_from(("visited", "subscriptions", "all")))
    def make_plan(self, person: Person, scope: Any) -> Plan:
        # A day later, so that earlier plans are out of the way.
        self.hours += 24
        made = self.forum.catchup.create(person.principal, scope=scope)
        expected = self.oracle.plan(person.session, scope)
        others = sum(post.session != person.session for thread in expected for post in thread.posts)
        assert (made["threadCount"], made["postCount"]) == (len(expected), others)
        return Plan(made["planId"], person, expected)

    @rule(target=receipts, plan=plans, limit=st.sampled_from((1, 2, 5, 100)))
    def walk_plan(self, plan: Plan, limit: int) -> Any:
        if plan.id != self.living:
            refusal("plan_expired", lambda: self.forum.catchup.page(plan.owner.principal, plan.id))
            return multiple()
        return multiple(*self.walk(plan, limit))

    def walk(self, plan: Plan, limit: int) -> list[Receipt]:
        """All pages of a plan compared, and their receipts."""
        principal, cursor, position = plan.owner.principal, None, 0
        expected = [post for thread in plan.threads for post in thread.posts]
        reasons = {thread.id: thread.reasons for thread in plan.threads}
        receipts = []
        more = True
        while more:
            page = self.forum.catchup.page(principal, plan.id, cursor=cursor, limit=limit)
            covered = expected[position : position + limit]
            shown = [post.post for post in covered if post.session != plan.owner.session]
            assert [post["id"] for post in page["posts"]] == shown
            told = {thread["threadId"]: thread["reasons"] for thread in page["threads"]}
            assert told == {post["threadId"]: reasons[post["threadId"]] for post in page["posts"]}
            if page["receiptId"] is not None:
                receipts.append(Receipt(plan, page["receiptId"], position, position + len(covered)))
            position += len(covered)
            cursor, more = page["pageInfo"]["nextCursor"], page["pageInfo"]["hasMore"]
            assert more == (position < len(expected)) == (cursor is not None)
        return receipts

    @property
    def living(self) -> str:
        """The id of the newest plan; each new one moves the clock past the end of those before."""
        return str(
            self.forum.database.read(
                lambda db: db.execute("SELECT id FROM catchup_plan ORDER BY expires_at DESC LIMIT 1").get
            )
        )

    @rule(receipt=receipts)
    def acknowledge_receipt(self, receipt: Receipt) -> None:
        plan, session = receipt.plan, receipt.plan.owner.session

        def act() -> dict[str, Any]:
            return self.forum.catchup.acknowledge(plan.owner.principal, plan.id, receipt_id=receipt.id)

        if plan.id != self.living:
            refusal("plan_expired", act)
            return
        stretches = plan.stretch(receipt.begin, receipt.end)
        reached = {
            thread: max(self.oracle.read.get((session, thread), 0), low) for thread, (low, _, _) in stretches.items()
        }
        if any(reached[thread] < start for thread, (_, start, _) in stretches.items()):
            refusal("coverage_gap", act)
            return
        expected = [
            {
                "threadId": thread,
                "readThrough": str(self.oracle.raise_read(session, thread, through)),
                "unreadCount": self.oracle.unread(session, thread),
            }
            for thread, (_, _, through) in stretches.items()
        ]
        assert act()["threads"] == expected

    # What must be so at any time.

    @rule()
    def reopen(self) -> None:
        self.forum.database.close()
        self.open()

    @rule(person=people, place=threads)
    def look(self, person: Person, place: Place) -> None:
        """Everything that a session is told about a thread and its own subscriptions; looking changes nothing."""
        session, oracle = person.session, self.oracle
        view = self.talk.thread_view(person, place.id)
        assert {
            name: view[name] for name in ("readThrough", "unreadCount", "postCount", "watching", "involved", "muted")
        } == {
            "readThrough": str(oracle.read.get((session, place.id), 0)),
            "unreadCount": oracle.unread(session, place.id),
            "postCount": len(place.posts),
            "watching": ("thread_watch", session, place.id) in oracle.baselines,
            "involved": ("participation", session, place.id) in oracle.baselines,
            "muted": (session, place.id) in oracle.muted,
        }
        assert view["lastSequence"] == str(max(e.sequence for e in oracle.activity if e.thread == place.id))
        listed = self.forum.interests.subscriptions(person.principal)
        told = {
            ("subforum_watch", session, found["key"]): int(found["baselineSequence"]) for found in listed["subforums"]
        }
        told |= {
            ("thread_watch", session, found["threadId"]): int(found["baselineSequence"]) for found in listed["threads"]
        }
        assert told == {
            entry: baseline
            for entry, baseline in oracle.baselines.items()
            if entry[1] == session and entry[0] in ("thread_watch", "subforum_watch")
        }

    @invariant()
    def everybody_hears_what_is_meant_for_them(self) -> None:
        assert self.forum.database.read(interests.tail) == self.oracle.tail
        for person in {each.session: each for each in self.everybody}.values():
            page = self.forum.events.page(person.principal, start="beginning", limit=limits.EVENTS_PAGE)
            expected = self.oracle.eligible(person.session, frozenset(scopes.TOKENS), 0)
            assert {int(event["sequence"]): event["reasons"] for event in page["events"]} == expected


ForumMachine.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=80,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestForumMachine = pytest.mark.timeout(300)(ForumMachine.TestCase)
