"""vLLM's own server as a child process on a loopback port: started, watched, and never left behind."""

from __future__ import annotations

import collections
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx

from scout.errors import ServerError, printable
from scout.scorer import environment
from scout.scorer.folder import Folder

START_SECONDS = 1800.0
"""Time to load a model: large weights over a network disk take many minutes."""
STOP_SECONDS = 10.0
LOG_LINES = 25
SERVED_NAME = "scout"


class VllmServer:
    """A running vLLM server. `start` it, `stop` it in a finally block."""

    def __init__(self, folder: Folder, *, memory_share: float = 0.9) -> None:
        """memory_share: part of a GPU's memory that vLLM may take."""
        self.port = _free_port()
        self.key = secrets.token_hex(16)
        """Other users of this machine can reach the port, but not use it."""
        self._log: collections.deque[str] = collections.deque(maxlen=LOG_LINES)
        self._process: subprocess.Popen[str] | None = None
        self._command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *_arguments(folder, self.port)]
        if environment.has_gpu():
            self._command += ["--gpu-memory-utilization", str(memory_share)]

    @property
    def url(self) -> str:
        """Base address, without path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start vLLM and return when it answers. Raises ServerError with its last log lines when it dies instead.

        Call it from the main thread: the kernel ends the child when the thread that started it ends.
        """
        variables = environment.prepare(dict(os.environ))
        variables["VLLM_API_KEY"] = self.key
        self._process = subprocess.Popen(
            self._command,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C in a terminal reaches us alone; we stop the whole group
            preexec_fn=environment.die_with_parent,
        )
        threading.Thread(target=self._read_log, args=(self._process,), daemon=True).start()
        deadline = time.monotonic() + START_SECONDS
        with httpx.Client(timeout=5, trust_env=False) as client:
            while time.monotonic() < deadline:
                if not self.running:
                    raise ServerError(f"vLLM ended during start (exit code {self._process.poll()}).\n{self.last_log()}")
                with contextlib.suppress(httpx.HTTPError):
                    if client.get(f"{self.url}/health").status_code == 200:
                        return
                time.sleep(0.25)
        raise ServerError(f"vLLM did not answer within {START_SECONDS:.0f} s.\n{self.last_log()}")

    def wait(self) -> int:
        """Block until the process ends; its exit code."""
        return self._process.wait() if self._process is not None else 0

    def last_log(self) -> str:
        """The last lines that vLLM wrote, for a message."""
        time.sleep(0.2)  # the reader may be a moment behind a process that has just ended
        lines = "\n".join(f"  vllm: {printable(line, 300)}" for line in list(self._log))
        return f"Its last lines:\n{lines}"

    def stop(self) -> None:
        """End vLLM and all of its processes: politely, then by force."""
        process = self._process
        if process is None:
            return
        for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
        self._process = None

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        if process.stdout is not None:
            for line in process.stdout:
                self._log.append(line.rstrip())


def _arguments(folder: Folder, port: int) -> list[str]:
    words = ["--model", str(folder.path), "--served-model-name", SERVED_NAME, "--host", "127.0.0.1"]
    words += ["--port", str(port), "--disable-uvicorn-access-log"]
    for name, value in environment.engine_options(folder.context_tokens, folder.dtype).items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += [f"--{option}", str(value)]
    return words


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
