"""The three wire formats of the scripted model: OpenAI chat completions, OpenAI responses, Anthropic messages.

Each format reads a request into a ``Conversation`` and writes a ``Step`` either as one JSON value or as a list of
server-sent events, each ``(event name or None, data)``. The pieces of the text are taken from an iterator one by one,
so that it can spread them over time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.fakes.model_script import Conversation, Step, Tool, real_text

Json = dict[str, Any]
Event = tuple[str | None, Json | str]


@dataclass(frozen=True, slots=True)
class Wire:
    """One format: how to read a request, answer it whole, stream it, and report a failure."""

    name: str
    read: Callable[[Json], Conversation]
    whole: Callable[[Step, str], Json]
    events: Callable[[Step, str, Iterable[str]], Iterator[Event]]
    failure: Callable[[int], Json]


def wire_for(path: str) -> Wire | None:
    """Return the format that a request path belongs to, by its end."""
    path = path.partition("?")[0].rstrip("/")
    return next((wire for end, wire in _BY_PATH.items() if path.endswith(end)), None)


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    return [b["text"] for b in blocks if isinstance(b, dict) and b.get("type") in {"text", "input_text"}]


def _conversation(turns: Iterable[tuple[str, object]], tools: Iterable[Tool]) -> Conversation:
    """``turns`` are ("user", content) and ("result", None) in order; contents without real text are skipped."""
    texts: list[str] = []
    results = 0
    for kind, content in turns:
        if kind == "result":
            results += 1
            continue
        text = "\n".join(t for t in (real_text(part) for part in _texts(content)) if t)
        if text:
            texts.append(text)
            results = 0
    return Conversation(tuple(texts), results, tuple(tools))


def _tool(spec: Mapping[str, Any], schema_key: str, namespace: str | None = None) -> Tool:
    schema = spec.get(schema_key) or {}
    return Tool(str(spec.get("name", "")), dict(schema.get("properties") or {}), namespace)


def _openai_failure(status: int) -> Json:
    return {"error": {"message": f"scripted failure {status}", "type": "scripted_error", "code": None, "param": None}}


# OpenAI chat completions


def _read_chat(body: Json) -> Conversation:
    turns = (
        ("result", None) if m.get("role") == "tool" else ("user", m.get("content"))
        for m in body.get("messages", [])
        if m.get("role") in {"user", "tool"}
    )
    functions = (tool["function"] for tool in body.get("tools") or [] if "function" in tool)
    return _conversation(turns, (_tool(function, "parameters") for function in functions))


def _chat_calls(step: Step) -> list[Json]:
    calls = [(step.call, step.arguments), *step.more_calls] if step.call else []
    return [
        {"id": _call_id(), "type": "function", "function": {"name": tool.name, "arguments": arguments}}
        for tool, arguments in calls
    ]


def _chat_whole(step: Step, model: str) -> Json:
    message: Json = {"role": "assistant", "content": None if step.call else step.text}
    if step.call:
        message["tool_calls"] = _chat_calls(step)
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if step.call else "stop"}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [choice],
        "usage": _CHAT_USAGE,
    }


def _chat_events(step: Step, model: str, pieces: Iterable[str]) -> Iterator[Event]:
    def chunk(delta: Json, finish: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
        return None, {**head, "choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    for index, call in enumerate(_chat_calls(step)):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    for piece in pieces:
        yield chunk({"content": piece})
    yield chunk({}, "tool_calls" if step.call else "stop")
    tail = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": []}
    yield None, {**tail, "usage": _CHAT_USAGE}
    yield None, "[DONE]"


_CHAT_USAGE: Json = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


# OpenAI responses


def _read_responses(body: Json) -> Conversation:
    items = body.get("input", [])
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    turns: list[tuple[str, object]] = []
    for item in items:
        if str(item.get("type", "")).endswith("_output"):
            turns.append(("result", None))
        elif item.get("role") == "user":
            turns.append(("user", item.get("content")))
    return _conversation(turns, _responses_tools(body.get("tools") or []))


def _responses_tools(specs: Iterable[Json], namespace: str | None = None) -> Iterator[Tool]:
    for spec in specs:
        if spec.get("type") == "namespace":
            yield from _responses_tools(spec.get("tools") or [], str(spec.get("name")))
        elif spec.get("type") == "local_shell":
            yield Tool("local_shell", {"command": {"type": "array"}})
        elif "name" in spec:
            yield _tool(spec, "parameters", namespace)


def _responses_item(step: Step, call_id: str) -> Json:
    if step.call is None:
        content = [{"type": "output_text", "text": step.text, "annotations": []}]
        return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    call = {"call_id": call_id, "name": step.call.name, "arguments": step.arguments, "status": "completed"}
    extra = {"namespace": step.call.namespace} if step.call.namespace else {}
    return {"type": "function_call", "id": f"fc_{call_id}", **call, **extra}


def _responses_whole(step: Step, model: str) -> Json:
    return _responses_body(model, [_responses_item(step, _call_id())], "completed")


def _responses_body(model: str, output: list[Json], status: str) -> Json:
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 15,
    }
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": model, "status": status}
    return {**head, "output": output, "usage": usage if status == "completed" else None}


def _responses_events(step: Step, model: str, pieces: Iterable[str]) -> Iterator[Event]:
    def event(kind: str, **fields: Any) -> Event:
        return kind, {"type": kind, **fields}

    item = _responses_item(step, _call_id())
    yield event("response.created", response=_responses_body(model, [], "in_progress"))
    opened: Json = {**item, "status": "in_progress", "arguments": ""} if step.call else {**item, "content": []}
    yield event("response.output_item.added", output_index=0, item=opened)
    where = {"item_id": item["id"], "output_index": 0}
    if step.call:
        yield event("response.function_call_arguments.delta", **where, delta=step.arguments)
        yield event("response.function_call_arguments.done", **where, arguments=step.arguments)
    else:
        part = {"type": "output_text", "text": "", "annotations": []}
        yield event("response.content_part.added", **where, content_index=0, part=part)
        text = ""
        for piece in pieces:
            text += piece
            yield event("response.output_text.delta", **where, content_index=0, delta=piece)
        item["content"][0]["text"] = text
        yield event("response.output_text.done", **where, content_index=0, text=text)
        yield event("response.content_part.done", **where, content_index=0, part={**part, "text": text})
    yield event("response.output_item.done", output_index=0, item=item)
    yield event("response.completed", response=_responses_body(model, [item], "completed"))


# Anthropic messages


def _read_anthropic(body: Json) -> Conversation:
    turns: list[tuple[str, object]] = []
    for message in body.get("messages", []):
        if message.get("role") != "user":
            continue
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        turns += [("result", None) for block in blocks if block.get("type") == "tool_result"]
        turns.append(("user", content))
    return _conversation(turns, (_tool(t, "input_schema") for t in body.get("tools") or []))


def _anthropic_block(step: Step) -> Json:
    if step.call is None:
        return {"type": "text", "text": step.text}
    arguments = json.loads(step.arguments)
    return {"type": "tool_use", "id": f"toolu_{_call_id()}", "name": step.call.name, "input": arguments}


def _anthropic_whole(step: Step, model: str) -> Json:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [_anthropic_block(step)],
        "stop_reason": "tool_use" if step.call else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


def _anthropic_events(step: Step, model: str, pieces: Iterable[str]) -> Iterator[Event]:
    def event(kind: str, **fields: Any) -> Event:
        return kind, {"type": kind, **fields}

    whole = _anthropic_whole(step, model)
    yield event("message_start", message={**whole, "content": [], "stop_reason": None})
    block = whole["content"][0]
    opened = {**block, "input": {}} if step.call else {"type": "text", "text": ""}
    yield event("content_block_start", index=0, content_block=opened)
    if step.call:
        delta = {"type": "input_json_delta", "partial_json": step.arguments}
        yield event("content_block_delta", index=0, delta=delta)
    for piece in pieces:
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
    yield event("content_block_stop", index=0)
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=end, usage={"output_tokens": 5})
    yield event("message_stop")


def _anthropic_failure(status: int) -> Json:
    return {"type": "error", "error": {"type": "api_error", "message": f"scripted failure {status}"}}


_counter = iter(range(1, 1 << 62))


def _call_id() -> str:
    return f"call_{next(_counter)}"


_BY_PATH: dict[str, Wire] = {
    "/chat/completions": Wire("chat", _read_chat, _chat_whole, _chat_events, _openai_failure),
    "/responses": Wire("responses", _read_responses, _responses_whole, _responses_events, _openai_failure),
    "/messages": Wire("messages", _read_anthropic, _anthropic_whole, _anthropic_events, _anthropic_failure),
}
