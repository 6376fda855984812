"""From one line of command to many tasks: lists, matrices, templates. Pure but for reading a template.

Everything is checked before the first agent is started. What is filled in is never looked at again, so that a value with
braces in it stays as it is.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from side_agents import names
from side_agents.errors import NotFoundError, StateError, UsageError
from side_agents.infra import fs, text

LIMIT = 200
TASK_KEY = "task"
_NOTHING = "Nothing was started."
_TEMPLATE_BYTES = 1 << 20
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FIELD = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_]*)\}\}")
_TEMPLATE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

Matrix = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Item:
    """One agent to start: its whole task and what to call it."""

    task: str
    name: str


@dataclass(frozen=True, slots=True)
class _Draft:
    """A task, the part of it that says what it is about, and the values of the matrix in it."""

    task: str
    about: str
    values: tuple[str, ...]


def lines_of(content: str) -> list[str]:
    """The tasks in a list, one a line; blank lines and those that begin with # are passed over. Raises UsageError."""
    lines = (line.strip() for line in content.split("\n"))
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise UsageError(f"The list of tasks has no task in it. {_NOTHING}")
    return found


def parse_matrix(given: Iterable[str]) -> Matrix:
    """``KEY=a,b`` of each option, in order. Raises UsageError for anything else, and for a key or value given twice."""
    matrix: dict[str, tuple[str, ...]] = {}
    for each in given:
        key, values = _pair(each, "--matrix", "KEY=a,b")
        choices = tuple(value.strip() for value in values.split(","))
        if key in matrix or len(set(choices)) != len(choices) or not all(choices):
            raise UsageError(f"--matrix {each}: keys and values must be there, each once. {_NOTHING}")
        matrix[key] = choices
    return matrix


def parse_settings(given: Iterable[str]) -> dict[str, str]:
    """``KEY=VALUE`` of each option. Raises UsageError."""
    found: dict[str, str] = {}
    for each in given:
        key, value = _pair(each, "--set", "KEY=VALUE")
        if key in found or key == TASK_KEY:
            why = "the task itself is what {{task}} stands for" if key == TASK_KEY else "it is given twice"
            raise UsageError(f"--set {key}: {why}. {_NOTHING}")
        found[key] = value
    return found


def _pair(given: str, option: str, form: str) -> tuple[str, str]:
    key, separator, value = given.partition("=")
    if not separator or not _KEY.fullmatch(key):
        raise UsageError(f"{option} takes {form}, not {text.one_line(given, 60)!r}. {_NOTHING}")
    return key, value


def read_template(folder: Path, name: str) -> str:
    """A template's text. Raises NotFoundError, which names those that are there, and UsageError for an odd name and for
    a text that cannot be read or has no end.
    """
    if not _TEMPLATE_NAME.fullmatch(name):
        raise UsageError(f"{text.one_line(name, 60)!r} cannot be the name of a template. {_NOTHING}")
    path = folder / f"{name}.md"
    if not path.exists():
        known = sorted(each.stem for each in folder.glob("*.md")) if folder.is_dir() else []
        hint = f"There are: {', '.join(known)}." if known else f"Templates are files such as {path}."
        raise NotFoundError(f"There is no template called {name}. {_NOTHING}", hint=hint)
    try:
        content = fs.read_slice(path, 0, _TEMPLATE_BYTES + 1)
    except StateError as error:
        raise UsageError(f"The template {name} cannot be read: {error.message} {_NOTHING}") from error
    if len(content) > _TEMPLATE_BYTES:
        raise UsageError(f"The template {name} is longer than {_TEMPLATE_BYTES >> 20} MiB. {_NOTHING}")
    return content.decode("utf-8", "surrogateescape").strip("\n")


def expand(
    tasks: Sequence[str], matrix: Matrix, *, template: str | None = None, settings: Mapping[str, str] | None = None,
    name: str = "",
) -> list[Item]:  # fmt: skip
    """Every task with every combination of the matrix; no ``tasks`` is for a template that has no ``{{task}}``.

    ``{KEY}`` in task and template stands for a value of the matrix, ``{{KEY}}`` in the template for a setting. Raises
    UsageError for what is missing, and for what would be lost because nothing stands for it.
    """
    _check(tasks, matrix, template, settings or {})
    combinations = [dict(zip(matrix, values, strict=True)) for values in itertools.product(*matrix.values())]
    drafts: list[_Draft] = []
    for task in tasks or ("",):
        for chosen in combinations:
            own = whole = _fill_matrix(task, chosen)
            if template is not None:
                whole = _fill(_fill_matrix(template, chosen), {**(settings or {}), TASK_KEY: own})
            drafts.append(_Draft(whole, own or whole, tuple(chosen.values())))
    if len(drafts) > LIMIT:
        raise UsageError(f"These are {len(drafts)} agents; at most {LIMIT} are started at once. {_NOTHING}")
    if not all(draft.task.strip() for draft in drafts):
        raise UsageError(f"The task is empty. {_NOTHING}")
    return [Item(draft.task, own) for draft, own in zip(drafts, _distinct(drafts, name), strict=True)]


def _check(tasks: Sequence[str], matrix: Matrix, template: str | None, settings: Mapping[str, str]) -> None:
    whole = "\n".join((*tasks, template or ""))
    unused = [key for key in matrix if not _placeholder(key).search(whole)]
    if unused:
        raise UsageError(
            f"The task has no {{{unused[0]}}} in it, so --matrix {unused[0]} would start the same task again and again. "
            + _NOTHING,
            hint=f"Write {{{unused[0]}}} where the value belongs.",
        )
    if template is None:
        if settings:
            raise UsageError(f"--set goes with --template. {_NOTHING}")
        return
    fields = set(_FIELD.findall(template))
    missing = sorted(fields - settings.keys() - {TASK_KEY})
    if missing:
        advice = " ".join(f"--set {key}=..." for key in missing)
        raise UsageError(f"The template needs {', '.join(missing)}. {_NOTHING}", hint=f"Add {advice}")
    extra = sorted(settings.keys() - fields)
    if extra:
        raise UsageError(f"The template has no {{{{{extra[0]}}}}} in it. {_NOTHING}")
    if tasks and TASK_KEY not in fields:
        raise UsageError(f"The template has no {{{{task}}}} in it, so the task would be lost. {_NOTHING}")
    if not tasks and TASK_KEY in fields:
        raise UsageError(f"The template needs a task. {_NOTHING}", hint="Give it as words, with --file or with --each.")


def _placeholder(key: str) -> re.Pattern[str]:
    return re.compile(r"(?<!\{)\{" + key + r"\}(?!\})")


def _fill_matrix(task: str, chosen: Mapping[str, str]) -> str:
    if not chosen:
        return task
    keys = re.compile(r"(?<!\{)\{(" + "|".join(chosen) + r")\}(?!\})")
    return keys.sub(lambda match: chosen[match[1]], task)


def _fill(template: str, values: Mapping[str, str]) -> str:
    return _FIELD.sub(lambda match: values[match[1]], template)


def _distinct(drafts: Sequence[_Draft], name: str) -> list[str]:
    """Names of at most three parts in which no two of the batch agree: values of the matrix first, numbers at last."""
    slugs = [names.sanitise_slug(text.to_ascii(name)) or _slug(draft.about) for draft in drafts]
    with_values = [
        names.sanitise_slug(f"{text.to_ascii(' '.join(draft.values))} {slug}") if slugs.count(slug) > 1 else slug
        for slug, draft in zip(slugs, drafts, strict=True)
    ]
    found: list[str] = []
    for slug in with_values:
        number, own = 2, slug
        while own in found:
            own = "-".join((*slug.split("-")[: names.SLUG_WORDS - 1], str(number)))
            number += 1
        found.append(own)
    return found


def _slug(task: str) -> str:
    return names.slug_from_task(text.to_ascii(task[:2000]))
