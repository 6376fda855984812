"""What side agents take on disk (reference/field-reports R8)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from side_agents.core import trash
from side_agents.core.doctor_site import Site
from side_agents.core.findings import Finding, Severity
from side_agents.infra import fs_survey

_JOURNAL_LIMIT = 64 * 1024 * 1024
_DISK_SECONDS = 0.3
_MEND = "side-agents doctor --repair"


def disk_is_used_well(site: Site) -> Iterator[Finding]:
    """What slots, runtime folders, archive and trash take, and logs that outgrew their limit."""
    parts = {"slots": 0, "runtime": 0, "archive": 0, "trash": 0}
    lines: list[str] = []
    is_exact = True
    for name, folder in _folders(site):
        usage = fs_survey.measure(folder, seconds=None if site.exact else _DISK_SECONDS)
        parts[name] += usage.size
        is_exact &= usage.complete
        if name == "slots":
            lines.append(f"{folder.name} {'' if usage.complete else 'at least '}{megabytes(usage.size)}")
    if any(parts.values()):
        total = ", ".join(f"{name} {megabytes(size)}" for name, size in parts.items())
        yield Finding(
            code="disk",
            severity=Severity.OK,
            what=f"On disk: {total}." + (f" {'; '.join(lines)}." if lines else ""),
            mend="" if is_exact else "Not everything was looked at: `side-agents doctor --disk` takes the time.",
        )
    yield from _large_logs(site)


def _folders(site: Site) -> Iterator[tuple[str, Path]]:
    for slot in site.slots:
        if slot.path.is_dir() and not slot.path.is_symlink():
            yield "slots", slot.path
    for name, folder in (("runtime", "runtime"), ("archive", "runtime-archive")):
        if (site.paths.meta / folder).is_dir():
            yield name, site.paths.meta / folder
    if trash.root(site.context).is_dir():
        yield "trash", trash.root(site.context)


def megabytes(size: int) -> str:
    """A size for people."""
    return f"{size / 1_000_000:.1f} MB"


def _large_logs(site: Site) -> Iterator[Finding]:
    cap = 2 * site.context.config.backlog_max_bytes + 256 * 1024
    for agent_id in site.runtime_ids():
        runtime = site.paths.runtime(agent_id)
        for path, limit in ((runtime.backlog, cap), (runtime.journal, _JOURNAL_LIMIT)):
            size = fs_survey.file_size(path)
            if size > limit:
                yield Finding(
                    code="log-large",
                    severity=Severity.WARNING,
                    what=f"{path.name} of {agent_id} has grown to {megabytes(size)}.",
                    safe="It is only a record; nothing depends on its length but the disk.",
                    mend=_MEND if path == runtime.backlog else f"side-agents stop {agent_id} (when its work is done)",
                    repair="cut it in place to its last part" if path == runtime.backlog else None,
                    subject=agent_id,
                    place=path,
                )
