"""Which folder is which worktree, read from the pointers that git keeps in both directions. No process.

A linked worktree's ``.git`` is a *file* that names its administrative folder ``<common>/worktrees/<name>``, and the file
``gitdir`` in there names the ``.git`` file. Only where both agree is the folder that worktree (field reports 2 and 5).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from side_agents.infra import fs

_LIMIT = 8192


@dataclass(frozen=True, slots=True)
class Registration:
    """One administrative folder and the worktree that it names; ``locked`` is the reason of ``git worktree lock``."""

    admin: Path
    worktree: Path
    locked: str | None = None


def registrations(common_dir: Path) -> list[Registration]:
    """All of them, hand-deleted worktrees too; what is no registration is passed over. Raises StateError."""
    folder = common_dir / "worktrees"
    names = sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []
    found = (_read(admin) for admin in names if admin.is_dir() and not admin.is_symlink())
    return [registration for registration in found if registration is not None]


def named_by(slot: Path) -> Path | None:
    """The real path of the administrative folder that a worktree's ``.git`` file names; None when it is no such file."""
    dot_git = slot / ".git"
    if dot_git.is_symlink() or not dot_git.is_file():
        return None
    text = os.fsdecode(fs.read_slice(dot_git, 0, _LIMIT)).rstrip("\n")
    target = text.removeprefix("gitdir: ")
    return None if target == text or not target else _real(slot, target)


def common_of(admin: Path) -> Path | None:
    """The common directory that an administrative folder names."""
    text = os.fsdecode(fs.read_slice(admin / "commondir", 0, _LIMIT)).strip()
    return _real(admin, text) if text else None


def busy_files(admin: Path) -> list[str]:
    """Lock files of a git that works in this worktree, or was cut off in it."""
    # Our own stay for ever, held or not; whoever holds one has a record or a lease for the slot besides.
    return sorted(path.name for path in admin.glob("*.lock") if not path.name.startswith("side-agents-"))


def is_git_directory(folder: Path) -> bool:
    """Whether a folder is itself a repository's git directory."""
    return (folder / "HEAD").is_file() and ((folder / "objects").is_dir() or (folder / "commondir").is_file())


def point(admin: Path, worktree: Path) -> None:
    """Make an administrative folder and a worktree name each other, by absolute paths. Raises StateError."""
    fs.replace(admin / "gitdir", os.fsencode(f"{worktree / '.git'}\n"), mode=0o644)
    fs.replace(worktree / ".git", os.fsencode(f"gitdir: {admin}\n"), mode=0o644)


def prepare(admin: Path, branch: str, worktree: Path) -> Path:
    """Everything but the index of an entry for a worktree that lost its own, in a folder beside it, to be moved there.

    Raises StateError. What a killed one left is begun anew.
    """
    draft = admin.with_name(f".side-agents-{admin.name}")
    fs.make_private_dir(draft)
    fs.replace(draft / "HEAD", os.fsencode(f"ref: refs/heads/{branch}\n"), mode=0o644)
    fs.replace(draft / "commondir", "../..\n", mode=0o644)
    fs.replace(draft / "gitdir", os.fsencode(f"{worktree / '.git'}\n"), mode=0o644)
    return draft


def _read(admin: Path) -> Registration | None:
    text = os.fsdecode(fs.read_slice(admin / "gitdir", 0, _LIMIT)).strip("\n")
    if not text.endswith("/.git"):
        return None
    reason = admin / "locked"
    locked = os.fsdecode(fs.read_slice(reason, 0, _LIMIT)).strip() if os.path.lexists(reason) else None
    # The folder above .git, not .git itself, is made real: a planted link must not lead elsewhere.
    return Registration(admin, _real(admin, text.removesuffix("/.git")), locked)


def _real(base: Path, text: str) -> Path:
    return Path(os.path.realpath(base / text))
