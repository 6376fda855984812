"""The scripted model that stands in for a model service: three wire formats, one set of directives."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.model_server import ModelServer

SHELL = {"type": "object", "properties": {"command": {"type": "string"}}}
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages?beta=true"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ModelServer]:
    with ModelServer(log=tmp_path / "log.jsonl") as running:
        yield running


def request(api: str, text: str, *, results: int = 0, tools: bool = True, stream: bool = False) -> dict[str, Any]:
    """A request as a client of this format sends it, after ``results`` tool results."""
    if api == "chat":
        messages: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": text}]
        messages += [{"role": "tool", "tool_call_id": str(n), "content": "out"} for n in range(results)]
        declared = [{"type": "function", "function": {"name": "bash", "parameters": SHELL}}]
        return {"model": "m", "stream": stream, "messages": messages, "tools": declared if tools else []}
    if api == "responses":
        items: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "input_text", "text": text}]}]
        items += [{"type": "function_call_output", "call_id": str(n), "output": "out"} for n in range(results)]
        declared = [{"type": "function", "name": "exec_command", "parameters": {"properties": {"cmd": {}}}}]
        return {"model": "m", "stream": stream, "input": items, "tools": declared if tools else []}
    turns: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    for number in range(results):
        turns.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": str(number), "content": "out"}]}
        )
    declared = [{"name": "Bash", "input_schema": SHELL}]
    return {"model": "m", "stream": stream, "messages": turns, "tools": declared if tools else []}


def post(server: ModelServer, path: str, body: dict[str, Any]) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def ask(server: ModelServer, api: str, text: str, **options: Any) -> tuple[str, str]:
    """Return (text, tool call) of the answer, streamed or not, whatever the format."""
    status, raw = post(server, PATHS[api], request(api, text, **options))
    assert status == 200, raw
    if not options.get("stream"):
        return _whole(api, json.loads(raw))
    data = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")]
    return _streamed(api, data)


def _whole(api: str, value: dict[str, Any]) -> tuple[str, str]:
    if api == "chat":
        message = value["choices"][0]["message"]
        return message["content"] or "", str(message.get("tool_calls", ""))
    part = value["output"][0] if api == "responses" else value["content"][0]
    if part["type"] == "message":
        part = part["content"][0]
    return part.get("text", ""), str(part) if "call" in part["type"] or "use" in part["type"] else ""


def _streamed(api: str, data: list[dict[str, Any]]) -> tuple[str, str]:
    if api == "chat":
        deltas = [d["choices"][0]["delta"] for d in data if d["choices"]]
        calls = [d["tool_calls"] for d in deltas if "tool_calls" in d]
        return "".join(d.get("content") or "" for d in deltas), str(calls or "")
    if api == "responses":
        final = next(d for d in data if d["type"] == "response.completed")["response"]
        return _whole(api, final)
    text = "".join(d["delta"].get("text", "") for d in data if d["type"] == "content_block_delta")
    names = [d["content_block"].get("name", "") for d in data if d["type"] == "content_block_start"]
    arguments = "".join(d["delta"].get("partial_json", "") for d in data if d["type"] == "content_block_delta")
    return text, "".join(names) + arguments


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", sorted(PATHS))
def test_it_echoes_says_runs_and_finishes_in_every_format(server: ModelServer, api: str, stream: bool) -> None:
    assert ask(server, api, "hello\nyou", stream=stream) == ("ECHO: hello", "")
    assert ask(server, api, "SAY: one\nSAY: two", stream=stream) == ("one\ntwo", "")
    script = "do it\nRUN: echo a  b\nRUN: second\nSAY: bye"
    text, call = ask(server, api, script, stream=stream)
    assert text == ""
    assert "echo a  b" in call
    assert re.search("bash|Bash|exec_command", call)
    assert "second" in ask(server, api, script, results=1, stream=stream)[1]
    assert ask(server, api, script, results=2, stream=stream) == ("bye", "")
    assert ask(server, api, "RUN: x", results=1, stream=stream) == ("DONE", "")


@pytest.mark.parametrize("api", sorted(PATHS))
def test_a_request_without_tools_gets_a_short_answer_whatever_it_says(server: ModelServer, api: str) -> None:
    assert ask(server, api, "SLEEP: 60", tools=False) == ("Short answer", "")


def test_several_calls_go_into_one_message_and_are_answered_together(server: ModelServer) -> None:
    script = 'TOOL: bash {"command": "a"}\nALSO: bash {"command": "b"}\nRUN: third\nSAY: bye'
    for stream in (False, True):
        _, calls = ask(server, "chat", script, stream=stream)
        assert calls.index('"a"') < calls.index('"b"')
        assert "third" in ask(server, "chat", script, results=2, stream=stream)[1]
        assert ask(server, "chat", script, results=3, stream=stream) == ("bye", "")


def test_a_tool_is_found_by_its_name_or_the_end_of_it_and_a_missing_one_is_said(server: ModelServer) -> None:
    assert "exec_command" in ask(server, "responses", 'TOOL: command {"cmd": "x"}')[1]
    assert "NO SUCH TOOL: ping" in ask(server, "chat", "TOOL: ping {}")[0]


def test_blocks_that_clients_add_are_no_user_text(server: ModelServer) -> None:
    body = request("messages", "SAY: mine")
    body["messages"].append(
        {"role": "user", "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>"}]}
    )
    _, raw = post(server, PATHS["messages"], body)
    assert json.loads(raw)["content"][0]["text"] == "mine"


def test_the_log_keeps_every_user_text_byte_for_byte(server: ModelServer, tmp_path: Path) -> None:
    text = "  tab\there\r\n你好 🙂 " + "x" * 200_000 + "\n\n"
    ask(server, "chat", text)
    assert server.requests()[0]["userTexts"] == [text]
    line = json.loads((tmp_path / "log.jsonl").read_text(encoding="utf-8"))
    assert (line["lastUser"], line["api"], line["action"], line["tools"]) == (text, "chat", "echo", ["bash"])


def test_fail_answers_with_the_status_always_or_so_many_times(server: ModelServer) -> None:
    statuses = [post(server, PATHS["chat"], request("chat", "FAIL: 500 2\nSAY: ok"))[0] for _ in range(3)]
    assert statuses == [500, 500, 200]
    assert {post(server, PATHS["messages"], request("messages", "FAIL: 400"))[0] for _ in range(3)} == {400}


def test_wait_holds_the_answer_until_the_file_exists(server: ModelServer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    answers: list[str] = []
    waiting = threading.Thread(target=lambda: answers.append(ask(server, "chat", f"WAIT: {gate}\nSAY: through")[0]))
    waiting.start()
    server.wait_for("WAIT:")
    assert answers == []
    gate.touch()
    waiting.join(10)
    assert answers == ["through"]


def test_stream_spreads_its_pieces_over_the_time(server: ModelServer) -> None:
    started = time.monotonic()
    text, _ = ask(server, "chat", "STREAM: 4 0.2\nSAY: end", stream=True)
    assert text == "".join(f"piece {n} of 4\n" for n in range(1, 5)) + "end"
    assert time.monotonic() - started >= 0.2


@pytest.mark.parametrize("script", ["SLEEP: 60", "STREAM: 600 60"])
def test_a_client_that_hangs_up_is_logged(server: ModelServer, script: str) -> None:
    body = json.dumps(request("chat", script, stream=True)).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        server.wait_for(script)
    assert server.wait_for_event("client-gone")["api"] == "chat"


def test_an_unknown_address_is_not_found_and_recorded(server: ModelServer) -> None:
    assert post(server, "/v1/nothing", {})[0] == 404
    assert server.entries[-1]["path"] == "/v1/nothing"


def test_it_runs_as_a_program_of_its_own() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.fakes.model_server"]
    with subprocess.Popen(command, cwd=root, env={**os.environ}, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        port = int(program.stdout.readline().rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=10):
            pass
        program.terminate()
