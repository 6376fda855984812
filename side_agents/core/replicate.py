"""Ignored files of the main checkout that every slot gets: settings, secrets, data (the ``.worktreeinclude`` of the field).

Two lists are read, both optional: ``.worktreeinclude`` at the top of the repository, which a project may commit, and
``.pi/side-agent-include``, which ``setup`` writes; the syntax is in ``include_list``. Only what git ignores is taken: a
file that git would offer to add would count as the agent's own work in the slot. What the slot has is never replaced.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from side_agents.core import include_list
from side_agents.core.include_list import Mode, Pattern
from side_agents.errors import SideAgentsError
from side_agents.infra import clock, fs, fs_copy, fs_tree, git_ignored
from side_agents.infra.git import Git
from side_agents.paths import META_DIR, SHARED_PREFIX, is_lease

LISTS = (".worktreeinclude", f".pi/{SHARED_PREFIX}include")
_LIST_LIMIT = 1024 * 1024
_STAGE = f"{META_DIR}/incoming"
# Above one of these a start says what it has spent on copies.
_NOTABLE_BYTES = 200_000_000
_NOTABLE_SECONDS = 3.0
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Item:
    """One file, or one whole folder; ``size`` in bytes, 0 for a link."""

    path: str
    mode: Mode
    size: int = 0


@dataclass(frozen=True, slots=True)
class _Way:
    main: Path
    slot: Path
    path: str
    mode: Mode

    @property
    def source(self) -> Path:
        return self.main / self.path

    @property
    def target(self) -> Path:
        return self.slot / self.path


@dataclass(slots=True)
class Replicated:
    """What a slot got. ``kept`` was there already; warnings say what was passed over, and why."""

    items: list[Item] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_lists(main: Path) -> tuple[Pattern, ...]:
    """The patterns of both lists, those of the user's own after the project's. Raises StateError."""
    texts = [fs.read_slice(main / name, 0, _LIST_LIMIT) for name in LISTS if (main / name).is_file()]
    return tuple(pattern for text in texts for pattern in include_list.parse(os.fsdecode(text)))


def select(main: Path, patterns: Sequence[Pattern], ignored: Sequence[str]) -> list[tuple[str, Mode]]:
    """Which of the ignored paths of a checkout the patterns mean; a folder that is meant as a whole is one path."""
    found: list[tuple[str, Mode]] = []
    waiting = [path for path in reversed(ignored) if not _is_own(path)]
    while waiting:
        path = waiting.pop()
        mode = include_list.choose(patterns, path) if not _holds_own(path) else None
        if mode is not None:
            found.append((path, mode))
        elif path.endswith("/") and (_holds_own(path) or include_list.leads_into(patterns, path)):
            waiting += [child for child in _children(main, path) if not _is_own(child)]
    return found


def replicate(main: Path, slot: Path) -> Replicated:
    """Bring the listed files of the main checkout into a slot; nothing is raised, what fails is a warning."""
    done = Replicated()
    begun = clock.monotonic()
    try:
        patterns = read_lists(main)
        if not patterns:
            return done
        seen = git_ignored.untracked(Git(main))
        _bring(main, slot, select(main, patterns, seen.ignored), done)
        _mention_loose(patterns, [path for path in seen.loose if not os.path.lexists(slot / path)], done)
    except (SideAgentsError, OSError) as error:
        done.warnings.append(f"Not all listed files were brought into {slot.name}: {error}")
    _mention_cost(done, clock.monotonic() - begun)
    return done


def _bring(main: Path, slot: Path, wanted: Sequence[tuple[str, Mode]], done: Replicated) -> None:
    places = {path: mode for path, mode in wanted if _may_enter(slot, path, done)}
    # In the slot another commit is checked out: what it tracks, or does not ignore, would show as a change.
    links = [path.rstrip("/") for path, mode in places.items() if mode is Mode.LINK]
    ignored = git_ignored.filter_ignored(Git(slot), [*places, *links])
    hidden = [
        path for path in places if path in ignored and places[path] is Mode.LINK and path.rstrip("/") not in ignored
    ]
    if hidden:
        # To git a link to a folder is no folder, so that a pattern like `node_modules/` does not ignore it.
        git_ignored.add_excludes(Git(slot), [include_list.literal(path.rstrip("/")) for path in hidden])
    try:
        for path, mode in places.items():
            if path not in ignored:
                done.warnings.append(f"{path} was not brought into {slot.name}: git does not ignore it there.")
                continue
            try:
                _bring_one(_Way(main, slot, path, mode), done)
            except (SideAgentsError, OSError) as error:
                done.warnings.append(f"{path} was not brought into {slot.name}: {error}")
    finally:
        fs_copy.clear_stage(slot / _STAGE)
        fs_tree.remove_empty_dir(slot / META_DIR)


def _bring_one(way: _Way, done: Replicated) -> None:
    if os.path.lexists(way.target):
        _keep(way, done)
        return
    _check_source(way.source)
    way.target.parent.mkdir(parents=True, exist_ok=True)
    if way.mode is Mode.LINK:
        fs.symlink(way.source, way.target)
        done.items.append(Item(way.path, way.mode))
        return
    stage = way.slot / _STAGE
    fs.make_private_dir(stage)
    copied = fs_copy.place(way.source, way.target, stage)
    if copied is None:
        done.kept.append(way.path)
        return
    done.items.append(Item(way.path, way.mode, copied.size))
    if copied.passed_over:
        names = ", ".join(str(each.relative_to(way.source.parent)) for each in copied.passed_over[:_SHOWN])
        done.warnings.append(f"Left out of {way.path}, being no plain files or repositories of their own: {names}.")


def _check_source(source: Path) -> None:
    mode = source.lstat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
        raise OSError(0, "it is neither a file nor a folder")


def _keep(way: _Way, done: Replicated) -> None:
    done.kept.append(way.path)
    is_file = all(each.is_file() and not each.is_symlink() for each in (way.source, way.target))
    if way.mode is Mode.COPY and is_file and not fs_tree.has_same_content(way.source, way.target):
        done.warnings.append(f"{way.path} in {way.slot.name} is not the same as in {way.main}; it was kept.")


def _may_enter(slot: Path, path: str, done: Replicated) -> bool:
    """Whether every folder on the way is a real one of the slot itself, and no worktree or repository of its own."""
    here = slot
    for part in Path(path).parts[:-1]:
        here /= part
        if here.is_symlink() or (os.path.lexists(here) and not here.is_dir()) or os.path.lexists(here / ".git"):
            shown = here.relative_to(slot)
            done.warnings.append(f"{path} was not brought into {slot.name}: {shown} is no folder of it.")
            return False
    return True


def _children(main: Path, folder: str) -> Iterator[str]:
    place = main / folder
    if place.is_symlink() or os.path.lexists(place / ".git"):
        return
    for child in sorted(place.iterdir()):
        is_folder = child.is_dir() and not child.is_symlink()
        yield folder + child.name + ("/" if is_folder else "")


def _is_own(path: str) -> bool:
    name = path.rstrip("/")
    return name == META_DIR or is_lease(name) or name.startswith((f"{META_DIR}/", f".pi/{SHARED_PREFIX}"))


def _holds_own(path: str) -> bool:
    return path == ".pi/"


def _mention_loose(patterns: Sequence[Pattern], loose: Sequence[str], done: Replicated) -> None:
    meant = [path for path in loose if include_list.choose(patterns, path) is not None and not _is_own(path)]
    if meant:
        more = f" and {len(meant) - _SHOWN} more" if len(meant) > _SHOWN else ""
        done.warnings.append(
            f"Listed but not brought into the slot, because git does not ignore it: {', '.join(meant[:_SHOWN])}{more}. "
            "There it would look like the agent's own work; commit it, or add it to .gitignore or .git/info/exclude."
        )


def _mention_cost(done: Replicated, seconds: float) -> None:
    total = sum(item.size for item in done.items)
    if total < _NOTABLE_BYTES and seconds < _NOTABLE_SECONDS:
        return
    biggest = max(done.items, key=lambda item: item.size, default=None)
    if biggest is not None:
        done.warnings.append(
            f"Bringing the listed files into the slot took {seconds:.1f} s for {shown_size(total)}, most of it "
            f"{biggest.path} ({shown_size(biggest.size)}); a line `link:{biggest.path}` shares it instead."
        )


def shown_size(size: int) -> str:
    """``814 bytes``, ``12 kB``, ``3.4 MB``."""
    for unit, name in ((1_000_000_000, "GB"), (1_000_000, "MB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size // 1000} kB" if size >= 1000 else f"{size} bytes"
