"""What the calls of a companion take, besides the tools' inputs. Unknown keys are refused."""

from __future__ import annotations

from dataclasses import dataclass

from side_agents.schemas import BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class NoInput:
    """Input of ``agents``, ``resumable``, ``status``."""

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class StartByHand:
    """Input of ``start``: a task that a person typed, and what the extension found out about the conversation.

    ``summary`` is a model's text as it came; ``warnings`` are the extension's own, such as that of a slug it had to guess.
    """

    task: str
    slug: str = ""
    model: str | None = None
    client: str | None = None
    summary: str = ""
    summary_failed: bool = False
    has_messages: bool = True
    with_changes: bool = False
    warnings: tuple[str, ...] = ()

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeInput:
    """Input of ``resume``: a file of ``resumable``."""

    file: str
    fork: bool = False
    model: str | None = None
    again: bool = False

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsInput:
    """Input of ``clear``: ids that ``agents`` has named as clearable."""

    ids: tuple[str, ...]

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsInput:
    """Input of ``reclaim``: slots that ``agents`` has named as reclaimable."""

    slots: tuple[str, ...]

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class LogInput:
    """Input of ``log``."""

    id: str
    lines: int = 40

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class IdInput:
    """Input of ``jump``."""

    id: str

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class StopInput:
    """Input of ``stop``."""

    id: str
    tree: bool = False

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class RetitleInput:
    """Input of ``retitle``: a row of ``resumable`` as a person has edited it."""

    file: str
    typed: str

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeInput:
    """Input of ``mode``: a mode's name, or without one the model and thinking level of the session."""

    name: str = ""
    provider: str | None = None
    model: str | None = None
    thinking: str | None = None

    __pydantic_config__ = BORDER
