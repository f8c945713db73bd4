"""One vLLM engine in a process of its own, asked over pipes: `python -m scout.scorer.worker FOLDER`.

Frames are eight bytes of length and then MessagePack. The first one out is the `Answer` to the start; each frame in is
a list of `Request`, answered by one `Answer`. The process ends when its input does.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import BinaryIO

import msgspec

from scout.errors import ScoutError
from scout.scorer import folder
from scout.scorer.engine import Generation, Request

_LENGTH_BYTES = 8


class Answer(msgspec.Struct, frozen=True):
    """What a worker says; with an error there are no generations."""

    generations: list[Generation] = []
    error: str | None = None


def send(pipe: BinaryIO, message: object) -> None:
    """Write one frame."""
    content = msgspec.msgpack.encode(message)
    pipe.write(len(content).to_bytes(_LENGTH_BYTES) + content)
    pipe.flush()


def receive(pipe: BinaryIO) -> bytes | None:
    """The content of the next frame; None where the pipe ends."""
    head = pipe.read(_LENGTH_BYTES)
    content = pipe.read(int.from_bytes(head)) if len(head) == _LENGTH_BYTES else b""
    return content or None


def main() -> None:
    """Serves until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints must not end up between the frames
    try:
        from scout.scorer.vllm_engine import VllmEngine

        engine = VllmEngine(folder.load(sys.argv[1]))
    except ScoutError as error:
        send(answers, Answer(error=str(error)))
        return
    send(answers, Answer())
    while (content := receive(requests)) is not None:
        try:
            answer = Answer(engine.generate(msgspec.msgpack.decode(content, type=list[Request])))
        except ScoutError as error:
            answer = Answer(error=str(error))
        send(answers, answer)


if __name__ == "__main__":
    main()
