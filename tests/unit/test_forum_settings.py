"""The eight settings and which servers may be trusted (reference/forum 5.10)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from side_agents.errors import StateError, UsageError
from side_agents.forum.client import settings
from side_agents.forum.client.settings import PostingMode, Settings, check_origin, load_defaults, settings_from
from tests.support.forum import sound_forums
from tests.support.forum_client import Place, document, known_document, new_file, scripted_worker

__all__ = ["sound_forums"]


def test_t176_the_defaults_are_those_of_the_table_but_for_the_server_which_is_not_needed() -> None:
    assert Settings().document() == {
        "serverUrl": "local",
        "namePrefix": "pi",
        "postingMode": "approval",
        "autonomousSubforums": [],
        "pollIntervalSeconds": 60,
        "copySubforumsOnSpawn": True,
        "copyThreadWatchesOnSpawn": False,
        "includeModelProvenance": True,
    }
    assert settings.DEFAULT_SERVER == "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pollIntervalSeconds", 9), ("pollIntervalSeconds", 3601), ("pollIntervalSeconds", 60.0),
        ("pollIntervalSeconds", "60"), ("pollIntervalSeconds", True),
        ("namePrefix", ""), ("namePrefix", "x" * 33), ("namePrefix", "a b"), ("namePrefix", "ä"), ("namePrefix", "a\n"),
        ("postingMode", "free"), ("postingMode", None),
        ("autonomousSubforums", "lab"), ("autonomousSubforums", ["Lab"]), ("autonomousSubforums", ["lab", "lab"]),
        ("copySubforumsOnSpawn", 1), ("copyThreadWatchesOnSpawn", "yes"), ("includeModelProvenance", None),
        ("serverUrl", "http://forum.example"), ("serverUrl", ""), ("serverUrl", 8080),
        ("unknown", 1),
    ],
)  # fmt: skip
def test_t177_what_is_out_of_range_is_refused_and_named(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=name):
        settings_from({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pollIntervalSeconds", 10), ("pollIntervalSeconds", 11), ("pollIntervalSeconds", 3599), ("pollIntervalSeconds", 3600),
        ("namePrefix", "x" * 32), ("namePrefix", "a_b-C9"), ("postingMode", "read-only"), ("autonomousSubforums", ["a-1"]),
    ],
)  # fmt: skip
def test_t174_t177_what_is_just_in_range_is_taken(name: str, value: Any) -> None:
    assert settings_from({name: value}).document()[name] == value  # type: ignore[literal-required]


def test_t178_editing_the_defaults_leaves_running_workers_alone(tmp_path: Path) -> None:
    defaults = settings.defaults_path(tmp_path / "agent")
    defaults.parent.mkdir(parents=True)
    defaults.write_text(json.dumps({"postingMode": "read-only"}), encoding="utf-8")
    with new_file(tmp_path, document(settings=load_defaults(defaults).document())):
        pass
    defaults.write_text(json.dumps({"postingMode": "autonomous"}), encoding="utf-8")

    with new_file(tmp_path) as reopened:
        assert reopened.document["settings"]["postingMode"] == "read-only"


def test_t179_no_file_of_the_project_is_read(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for name in ("settings.json", ".pi/agent/agentforum/settings.json", ".pi/side-agents/forum/settings.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"postingMode": "autonomous"}), encoding="utf-8")

    assert load_defaults(settings.defaults_path(tmp_path / "home")) == Settings()
    with place.worker("a", registered=False, postingMode="approval") as worker:
        assert worker.settings.posting_mode is PostingMode.APPROVAL


@pytest.mark.parametrize("content", ["{", "[]", '{"nope": 1}'])
def test_defaults_that_are_not_valid_are_refused_and_kept(tmp_path: Path, content: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(content, encoding="utf-8")

    with pytest.raises((StateError, UsageError)):
        load_defaults(path)
    assert path.read_text(encoding="utf-8") == content


def test_t188_only_a_worker_that_is_not_bound_may_change_its_server(tmp_path: Path) -> None:
    free, _ = scripted_worker(tmp_path / "free", made=document())
    bound, _ = scripted_worker(tmp_path / "bound", made=known_document())
    with free, bound:
        assert free.change_settings({"serverUrl": "https://forum.example"}).server_url == "https://forum.example"
        before = bound.document
        with pytest.raises(UsageError, match="bound"):
            bound.change_settings({"serverUrl": "https://forum.example"})
        assert bound.document is before
        assert bound.change_settings({"pollIntervalSeconds": 10}).poll_interval_seconds == 10


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://forum.example", "https://forum.example"),
        ("https://Forum.Example:8443/", "https://forum.example:8443"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.8.9.1", "http://127.8.9.1"),
        ("http://localhost:1", "http://localhost:1"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_t189_https_and_http_on_this_machine_are_trusted(url: str, origin: str) -> None:
    assert check_origin(url) == origin


@pytest.mark.parametrize(
    "url",
    [
        "http://forum.example", "http://10.0.0.1", "http://127.0.0.1.evil.example", "http://localhost.evil.example",
        "https://user:secret@forum.example", "https://@forum.example", "https://forum.example/path",
        "https://forum.example?x=1", "https://forum.example?", "https://forum.example/#x", "ftp://forum.example", "https://",
        "forum.example", "http://127.1", "http://2130706433", "https://forum.example:99999", "https://forum.example:x",
        "https://forum.exam ple", "https://forum.example\n", "http://[::1", "https://fórum.example", "",
    ],
)  # fmt: skip
def test_t189_everything_else_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="cannot be a forum server"):
        check_origin(url)
