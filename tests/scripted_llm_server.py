"""An OpenAI-compatible server that plays a large model: it writes analyses, and it fails in every way on a script.

Run as a program it prints its port. What it answers to a request depends on the request alone, and how often it fails
before that on how often it was asked. The first part of the path chooses a script and a memory of its own:
`/mixed-1/v1`, `/good/v1` and so on. `GET /<part>/log` gives everything that has arrived there,
`GET /<part>/count` how much.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

KEY = "sk-scripted-0123456789abcdef"
SLEEP_SECONDS = 1.8
"""Longer than the time-out that tests give."""
RETRY_AFTER_SECONDS = 1
SECONDS = {"sleep": SLEEP_SECONDS, "slow": 0.05}
"""How long some answers take."""

LOG: dict[str, list[dict[str, Any]]] = defaultdict(list)
UNDER_WAY: Counter[str] = Counter()
LOCK = threading.Lock()


def plan(script: str, identity: str, arrivals: int) -> str:
    """What is done with a request that has arrived so often (1 = the first time)."""
    if not script.startswith("mixed"):
        return script.partition("-")[0]
    draw = int(hashlib.sha256(identity.encode()).hexdigest()[:8], 16) % 1000
    if arrivals == 1 and draw < 130:
        limits = {10: "busy", 18: "sleep", 60: "500", 95: "half", 130: "busy_ms"}
        return next(name for limit, name in limits.items() if draw < limit)
    if arrivals == 2 and draw < 20:
        return "500"
    content = int(hashlib.sha256(f"content {identity}".encode()).hexdigest()[:8], 16) % 100
    limits = {5: "wrong", 9: "refuse", 13: "length", 17: "told", 21: "hindsight", 100: "good"}
    return next(name for limit, name in limits.items() if content < limit)


def analysis(prompt: str, how: str) -> str:
    """A reply to `llm_prompt.messages`."""
    steps = {int(i): label for i, label in re.findall(r"^\[(\d+)\](?:.*\n)+?settled: (\w+)$", prompt, re.MULTILINE)}
    gold = {index: label for index, label in steps.items() if label != "open"}
    said = dict(gold)
    if how == "wrong":
        said[max(said)] = "correct" if said[max(said)] == "incorrect" else "incorrect"
    lines = []
    for index, label in said.items():
        reason = f"The file of step {index} is {'the' if label == 'correct' else 'not the'} one to be opened here."
        if how == "told":
            reason = "This one was labelled so, and the file fits that."
        if how == "hindsight":
            reason = "Later steps show that nothing comes of it."
        lines.append(f"[{index}] {reason} This step is {label}.")
    if '"State:"' in prompt:
        lines.append(f"State: seen up to step {max(steps)}, wrong: {[i for i in gold if gold[i] == 'incorrect']}")
    lines.append("Verdicts:")
    lines += [f"Step {index}: {label}" for index, label in said.items()]
    lines.append(f"Verdict: {'No' if 'incorrect' in said.values() else 'Yes'}")
    return "\n".join(lines)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        with suppress(ConnectionError):  # the one who asked was killed
            super().handle()

    def do_GET(self) -> None:
        _, script, what = self.path.split("/")
        with LOCK:
            events = LOG[script]
            self._send(200, json.dumps(len(events) if what == "count" else events).encode())

    def do_POST(self) -> None:
        script = self.path.split("/")[1]
        length = int(self.headers["Content-Length"])
        content = self.rfile.read(length)
        if len(content) < length:  # likewise
            return None
        body = json.loads(content)
        prompt = body["messages"][-1]["content"]
        first, last = re.findall(r"Audit steps (\d+) to (\d+)", prompt)[-1]
        task = prompt.split("\n", 1)[0].removeprefix("Task: ")
        identity = f"{task}|{first}-{last}|{body['temperature']}"
        event = {"identity": identity, "at": time.time(), "prompt": prompt if script == "good" else ""}
        with LOCK:
            UNDER_WAY[script] += 1
            event["at_once"] = UNDER_WAY[script]
            arrivals = 1 + sum(other["identity"] == identity for other in LOG[script])
            event["does"] = plan(script, identity, arrivals)
            LOG[script].append(event)
        if event["does"] in SECONDS:
            time.sleep(SECONDS[event["does"]])
        with LOCK:
            UNDER_WAY[script] -= 1
        if self.headers["Authorization"] != f"Bearer {KEY}" and script != "open":
            return self._send(401, f"wrong key {self.headers['Authorization']}".encode())
        return self._answer(event["does"], prompt)

    def _answer(self, does: str, prompt: str) -> None:
        if does == "busy":
            return self._send(429, b"slow down", {"Retry-After": str(RETRY_AFTER_SECONDS)})
        if does == "busy_ms":
            return self._send(429, b"slow down", {"retry-after-ms": "20"})
        if does == "quota":
            return self._send(429, b'{"error": {"code": "insufficient_quota", "message": "pay"}}', JSON)
        if does in ("500", "400", "403"):
            return self._send(int(does), f"no: key is {KEY}".encode())
        text = "I'm sorry, but I can't help with that." if does == "refuse" else analysis(prompt, does)
        if does == "echo":
            text = text.replace("The file", f"The key {KEY} and the file")
        finish = "length" if does == "length" else "stop"
        choice = {"index": 0, "message": {"role": "assistant", "content": text[: 50 if finish == "length" else None]}}
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": len(text) // 4}
        reply = {"id": "1", "object": "chat.completion", "choices": [{**choice, "finish_reason": finish}]}
        if does != "silent":
            reply["usage"] = usage
        self._send(200, json.dumps(reply).encode(), JSON, half=does == "half")
        return None

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None, *, half: bool = False) -> None:
        try:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if half else body)
        except OSError:
            self.close_connection = True  # the one who asked was killed or has lost patience
        if half:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Says nothing."""


JSON = {"Content-Type": "application/json"}


CLIENT = httpx.Client(trust_env=False, verify=False)
"""Of the tests: one connection, as they ask often."""


@contextmanager
def serving() -> Iterator[str]:
    """The server as a process of its own: its address, without a script."""
    process = subprocess.Popen([sys.executable, str(Path(__file__))], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.wait()


def log(address: str, script: str) -> list[dict[str, Any]]:
    """Everything that has arrived for a script, in order."""
    found: list[dict[str, Any]] = CLIENT.get(f"{address}/{script}/log").json()
    return found


def count(address: str, script: str) -> int:
    """How much has arrived for a script."""
    return int(CLIENT.get(f"{address}/{script}/count").text)


def counts(events: list[dict[str, Any]]) -> Counter[str]:
    """How often each request arrived."""
    return Counter(event["identity"] for event in events)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()
