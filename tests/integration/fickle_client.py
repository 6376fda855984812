"""A client that draws one line "> DRAFT" and has the fault that its first argument names. Standard library only.

    plain     no fault: journals, echoes each message
    deaf      no Enter is ever taken           deaf-once  the first Enter is lost
    forgetful takes messages, journals none    late       half a second between a message and its turn
    dialog    is ready and at the same moment asks for permission
    silent    journals nothing at all and works visibly for each message
    obedient  answers TERM with exit 0
    graceful  the same, and has a child in a session of its own that ignores TERM and HUP
    confirm   answers a message with a dialog below it, which Enter answers
    mute      takes a message and shows nothing but a new line; an Enter on that is an empty message
    echo      shows the message in the conversation just as the box shows it, the box below that
    ambush    opens a dialog in place of the box when something is pasted
    stealth   the same, without a word in the journal
    mortal    dies by KILL when something is pasted
    tall      grows its box by a line for each line of the text

Each message that it takes is a line of ``took.jsonl`` in the runtime folder.
"""

# ruff: noqa: PTH118, PTH123
from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import tty

PASTE_START, PASTE_END = b"\x1b[200~", b"\x1b[201~"
FOLDER = os.environ.get("PI_SIDE_RUNTIME_DIR", ".")
STUBBORN = "trap '' TERM HUP; while :; do sleep 0.2; done"


def append(name: str, value: object) -> None:
    with open(os.path.join(FOLDER, name), "a", encoding="utf-8") as file:
        file.write(json.dumps(value) + "\n")


class Fickle:
    """Draft, journal and fault of one run."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.draft = ""
        self.dialog = ""
        self.lost = 0

    def write(self, text: str) -> None:
        data = text.encode()
        while data:
            data = data[os.write(1, data) :]

    def journal(self, kind: str, **fields: object) -> None:
        if self.mode != "silent":
            append("events.jsonl", {"type": kind, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **fields})

    def open(self, prompted: bool) -> None:
        tty.setraw(0)
        self.write(f"\x1b[?2004hfickle {self.mode}\r\n")
        self.draw()
        self.journal("ready")
        if self.mode == "dialog":
            self.journal("turn_start")
            self.journal("waiting", **{"for": "permission", "text": "Delete everything?"})
        elif prompted:
            self.journal("turn_start")
            self.journal("turn_end", outcome="completed")

    def draw(self) -> None:
        if self.dialog:
            self.write(f"\r\x1b[K{self.dialog}")
            return
        if self.mode == "tall":
            self.write("\x1b[2J\x1b[H> " + self.draft.replace("\n", "\r\n  "))
            return
        self.write("\r\x1b[K> " + self.draft.replace("\n", "⏎")[-60:])

    def read(self) -> None:
        data = os.read(0, 65536)
        if not data:
            sys.exit(0)
        while PASTE_START in data and PASTE_END not in data:
            data += os.read(0, 65536)
        before, start, rest = data.partition(PASTE_START)
        self.keys(before)
        if start:
            pasted, _, after = rest.partition(PASTE_END)
            self.draft += pasted.decode("utf-8", "replace").replace("\r", "\n")
            self.pasted()
            self.keys(after)

    def pasted(self) -> None:
        if self.mode == "mortal":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.mode in ("ambush", "stealth"):
            self.dialog = "Delete everything? [Enter = yes]"
        self.draw()
        if self.mode == "ambush":
            self.journal("waiting", **{"for": "permission", "text": "Delete everything?"})

    def keys(self, data: bytes) -> None:
        for character in data.decode("utf-8", "replace"):
            if character == "\r":
                self.enter()
            elif character >= " ":
                self.draft += character
        self.draw()

    def enter(self) -> None:
        if self.mode == "deaf" or (self.mode == "deaf-once" and not self.lost):
            self.lost += 1
            return
        message, self.draft = self.draft.rstrip("\n"), ""
        append("took.jsonl", "DIALOG ANSWERED" if self.dialog else message)
        if self.mode in ("confirm", "mute"):
            self.write("\r\n")
            self.dialog = "Really?  [Yes] / No" if self.mode == "confirm" else " "
            return
        if self.mode == "echo":
            self.write("\r\nok, done\r\n")
            return
        if self.mode == "mortal" or message == "/fail":
            sys.exit(3)
        if self.mode != "forgetful":
            digest = hashlib.sha256(message.encode()).hexdigest()
            self.journal("input", sha256=digest, length=len(message), state="started")
        if message == "/quit":
            self.journal("quit", reason="command")
            sys.exit(0)
        if self.mode == "late":
            time.sleep(0.5)
        if self.mode != "forgetful":
            self.journal("turn_start")
        self.work(message)
        if self.mode != "forgetful":
            self.journal("turn_end", outcome="completed")

    def work(self, message: str) -> None:
        self.write(f"\r\x1b[Ktook {message[:40]}\r\n")
        if self.mode == "silent" and message.startswith("work"):
            for step in range(12):
                self.write(f"\r\x1b[Kworking {step}\r\n")
                time.sleep(0.1)


def main(mode: str, *prompt: str) -> None:
    if mode in ("obedient", "graceful"):
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if mode == "graceful":
        child = subprocess.Popen(["sh", "-c", STUBBORN], start_new_session=True)
        append("stubborn.pid", child.pid)
    client = Fickle(mode)
    client.open(bool(prompt))
    while True:
        client.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
