"""The forum: posts a second, wake-ups of other processes, search among 50,000 posts, pages of a thread, memory."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import apsw

from bench import forum_stand as stand
from bench.forum_child import POLL_SECONDS
from bench.group_idle import megabytes
from bench.harness import Row, World, interleave, timed, until, world
from side_agents.forum.requests import SearchRequest
from side_agents.forum.service.forum import Forum

ROUNDS = 40
WRITERS = 16
POSTS_EACH = 5
POSTS = 50_000
TRANSACTION = 5_000
PAGE = 50
_SEEN_IN_ONE_OF = 2_500
_VOCABULARY = 4_000


@dataclass(frozen=True)
class Scene:
    """What is measured at: a forum with an author and a thread."""

    made: World
    forum: Forum
    author: stand.Person
    thread: str

    @property
    def path(self) -> Path:
        """The forum's file."""
        return self.forum.database.path

    def post(self, author: stand.Person | None = None) -> None:
        """One reply."""
        stand.reply(self.forum, author or self.author, self.thread)


def measure(rounds: int | None) -> list[Row]:
    """Floors are SQLite, the kernel and a poller, with nothing around them, on the same file system in the same rounds."""
    count = rounds or ROUNDS
    with world() as made, stand.opened(made.base / "forum" / "forum.db") as forum:
        author = stand.person(forum, "author")
        scene = Scene(made, forum, author, stand.topic(forum, author))
        return [
            *_posts(scene, max(3, count // 5)),
            *_wakes(scene, count),
            *_reading(scene, count),
            *_memory(scene),
        ]


def _posts(scene: Scene, rounds: int) -> list[Row]:
    writers = [stand.person(scene.forum, f"writer-{number}") for number in range(WRITERS)]
    plain = _plain(scene.made.base / "plain.db")
    number = WRITERS * POSTS_EACH

    def commits() -> None:
        for _ in range(number):
            plain.execute("INSERT INTO post(body) VALUES(?)", (stand.BODY,))

    def posts(writer: stand.Person, count: int) -> None:
        for _ in range(count):
            scene.post(writer)

    def together() -> None:
        for done in [pool.submit(posts, writer, POSTS_EACH) for writer in writers]:
            done.result()

    with ThreadPoolExecutor(WRITERS) as pool:
        times = interleave(
            rounds,
            {
                "raw": lambda: timed(commits) / number,
                "one": lambda: timed(lambda: posts(writers[0], number)) / number,
                "many": lambda: timed(together) / number,
            },
        )
    plain.close()
    raw, one, several = times["raw"], times["one"], times["many"]
    rates = f"{1 / one:.0f} and {1 / several:.0f} a second over {1 / raw:.0f}"
    return [
        Row("forum: a post of a single writer, over a plain FULL commit", rounds, raw, one),
        Row(f"forum: a post of {WRITERS} writers, over a plain FULL commit", rounds, raw, several),
        Row(f"the same: posts of one and of {WRITERS} writers, over commits", rounds, figure=rates),
        Row(
            f"the same: rate of {WRITERS} writers over that of one", rounds, figure=f"{one / several:.2f} x", goal="2 x"
        ),
    ]


def _plain(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    for pragma in ("journal_mode = wal", "synchronous = full"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE post(seq INTEGER PRIMARY KEY, body TEXT NOT NULL)")
    return connection


def _wakes(scene: Scene, rounds: int) -> list[Row]:
    listener = stand.person(scene.forum, "listener")
    scene.forum.interests.watch_subforum(listener.principal, stand.SUBFORUM)
    rows = _woken(scene, rounds, ("in-process", "local", listener.credential))
    with stand.served(scene.made, scene.path) as address:
        return rows + _woken(scene, rounds, ("HTTP", address, listener.credential))


def _woken(scene: Scene, rounds: int, way: tuple[str, str, str]) -> list[Row]:
    """Ours and the poller hear of the same posts, from the end of the commit on; the bare wait, of a write to a file."""
    name, origin, credential = way
    changed = scene.forum.database.changed
    committed: list[int] = []
    bell = scene.made.base / "bell"
    bell.touch()

    def note() -> None:
        committed.append(time.monotonic_ns())

    heard: dict[str, list[float]] = {"raw": [], "poll": [], "ours": []}
    with ExitStack() as stack:
        others = {
            "raw": stack.enter_context(stand.other(scene.made, "raw", bell)),
            "poll": stack.enter_context(stand.other(scene.made, "poll", scene.path)),
            "ours": stack.enter_context(stand.other(scene.made, "wait", origin, scene.path, credential)),
        }
        changed.add_listener(note)
        stack.callback(changed.remove_listener, note)
        for number in range(rounds + 1):
            # Also lets a waiter fall asleep again; at random, or the poller would always be at the same place.
            time.sleep(0.02 + random.random() * POLL_SECONDS)
            committed.clear()
            scene.post()
            until(lambda: bool(committed), "the commit")
            times = {who: _heard(others[who], committed[0]) for who in ("ours", "poll")}
            begin = time.monotonic_ns()
            bell.write_bytes(b"!")
            times["raw"] = _heard(others["raw"], begin)
            if number:
                for who, seconds in times.items():
                    heard[who].append(seconds)
    kernel = _pair(
        f"forum: another process hears of a post, {name}, over a bare kernel wait", heard["raw"], heard["ours"]
    )
    poller = _pair("the same, over a 200 ms poller", heard["poll"], heard["ours"])
    return [*_with_goal(kernel, "5 ms"), *poller]


def _heard(other: stand.Other, begin: int) -> float:
    """Seconds from ``begin`` until the other process knew."""
    return max(0.0, (int(other.lines.readline()) - begin) / 1e9)


def _reading(scene: Scene, rounds: int) -> list[Row]:
    bodies, forum, author, thread = _bodies(), scene.forum, scene.author, scene.thread
    for _ in range(0, POSTS, TRANSACTION):
        stand.fill(forum, author, thread, (next(bodies) for _ in range(TRANSACTION)))
    connection = apsw.Connection(str(forum.database.path), flags=apsw.SQLITE_OPEN_READONLY)
    rows: list[Row] = []
    for what, text in (("rare", "seldom"), ("common", "often"), ("two terms", "often word7")):
        times = _samples(
            rounds,
            {
                "raw": lambda text=text: _raw_search(connection, text),  # type: ignore[misc]
                "ours": lambda text=text: forum.search.find(author.principal, SearchRequest(text=text)),  # type: ignore[misc]
            },
        )
        rows += _with_goal(_pair(f"forum: search in 50,000 posts, {what}, over FTS5", *times.values()), "100 ms")
    times = _samples(
        rounds,
        {
            "raw": lambda: _raw_page(connection, thread),
            "ours": lambda: forum.content.posts(author.principal, thread, limit=PAGE),
        },
    )
    connection.close()
    return rows + _pair(f"forum: a page of {PAGE} posts, over SELECT", *times.values())


def _bodies() -> Iterator[str]:
    """Posts of 30 words: one word in every second, another in one of 2,500, the rest from a vocabulary, the same each run."""
    chance = random.Random(5)
    words = [f"word{number}" for number in range(_VOCABULARY)]
    weights = [1 / (number + 1) for number in range(_VOCABULARY)]
    number = 0
    while True:
        body = chance.choices(words, weights, k=30)
        body += ["often"] * (number % 2 == 0) + ["seldom"] * (number % _SEEN_IN_ONE_OF == 0)
        yield " ".join(body)
        number += 1


def _raw_search(connection: apsw.Connection, text: str) -> list[object]:
    sql = "SELECT rowid FROM post_fts WHERE post_fts MATCH ? ORDER BY rank LIMIT 20"
    return list(connection.execute(sql, (text,)))


def _raw_page(connection: apsw.Connection, thread: str) -> list[object]:
    sql = "SELECT * FROM post WHERE thread_id = ? ORDER BY created_seq LIMIT ?"
    return list(connection.execute(sql, (thread, PAGE)))


def _samples(rounds: int, cases: Mapping[str, Callable[[], object]]) -> dict[str, list[float]]:
    """As ``interleave``, with every time instead of the median."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, case in cases.items():
            taken = timed(case)
            if number:
                times[name].append(taken)
    return times


def _pair(what: str, floor: list[float], ours: list[float]) -> list[Row]:
    return [
        Row(f"{what}: p50", len(ours), statistics.median(floor), statistics.median(ours)),
        Row(f"{what}: p99", len(ours), _p99(floor), _p99(ours)),
    ]


def _with_goal(pair: list[Row], goal: str) -> list[Row]:
    first, second = pair
    return [Row(first.what, first.rounds, first.floor, first.ours, goal=goal), second]


def _p99(times: list[float]) -> float:
    return sorted(times)[int(0.99 * len(times))]


def _memory(scene: Scene) -> list[Row]:
    with stand.other(scene.made, "bare") as bare, stand.other(scene.made, "hold", scene.path) as hold:
        floor, ours = megabytes([bare.pid]), megabytes([hold.pid])
    figure = f"{ours:.1f} MB over {floor:.1f} MB"
    return [Row("forum: memory of a process that has it open, over a bare Python with apsw", 1, figure=figure)]
