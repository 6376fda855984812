"""What the agents of the demo are given to do, in the script client's language."""

from __future__ import annotations

import sys
from dataclasses import dataclass

RESUMED = "pick-licence"


@dataclass(frozen=True, slots=True)
class Part:
    """One agent: ``answer`` is what we say when it asks, ``more`` what we want of it once it is resumed."""

    name: str
    task: str
    answer: str | None = None
    more: str | None = None


def parts() -> tuple[Part, ...]:
    """The three tasks: one works and lands by itself, one asks and is resumed later, one crashes half way."""
    return (_add_vat(), _pick_licence(), _speed_up())


def _add_vat() -> Part:
    return Part(
        "add-vat",
        _lines(
            "Add VAT to the shop, with a test",
            "sleep: 1.2",
            "write: test_vat.py import unittest\\n\\nfrom shop import with_vat\\n\\n\\n"
            "class VatTest(unittest.TestCase):\\n    def test_adds_a_fifth(self):\\n"
            "        self.assertEqual(with_vat(100), 120)\\n",
            "sleep: 1.2",
            "run: printf '\\n\\ndef with_vat(amount):\\n    return amount * 120 // 100\\n' >> shop.py",
            f"run: '{sys.executable}' -B -m unittest -q",
            "sleep: 0.5",
            "commit: Add VAT, with a test",
            "run: side-agents finish",
            "say: with_vat() is there and its test passes.",
        ),
    )


def _pick_licence() -> Part:
    return Part(
        RESUMED,
        _lines(
            "Give the shop a licence",
            "sleep: 1.5",
            "ask: Which licence do you want, MIT or Apache-2.0?",
            "write: LICENCE This shop is under the {answer} licence.\\n",
            "sleep: 0.7",
            "commit: Choose the {answer} licence",
            "say: The licence is {answer} now.",
        ),
        answer="MIT",
        more=_lines(
            "Name the licence in the README too",
            "sleep: 0.7",
            "run: printf '\\nLicence: MIT, see LICENCE.\\n' >> README.md",
            "commit: Name the licence in the README",
            "say: The README names it.",
        ),
    )


def _speed_up() -> Part:
    return Part(
        "speed-up",
        _lines(
            "Make the total faster",
            "sleep: 1",
            "write: fast.py from shop import total\\n\\nfast_total = total  # not finished\\n",
            "sleep: 3.5",
            "crash",
        ),
    )


def _lines(*lines: str) -> str:
    return "\n".join(lines)
