"""Options of the writer `llm`, checked before anything is sent; the API key, which is none of them."""

from __future__ import annotations

import argparse
import os
from urllib.parse import urlsplit, urlunsplit

import msgspec

from scout.errors import ConfigError, shown

KEY_VARIABLE = "OPENAI_API_KEY"
FEWEST_PROMPT_TOKENS = 2000


class Settings(msgspec.Struct, frozen=True):
    """How the writer is asked, and what it may cost."""

    endpoint: str
    """Base URL of an OpenAI-compatible API, such as `https://api.openai.com/v1`; without a path, `/v1` is meant."""
    model: str
    """Name of the model there."""
    tries: int = 4
    """Analyses asked for (part of) a window before its run is set aside."""
    concurrency: int = 16
    """Requests under way at the same time."""
    timeout_seconds: float = 600.0
    """Time for one whole answer."""
    budget_tokens: int = 0
    """Prompt and completion tokens that may be spent in this folder, earlier calls included; 0 = no limit."""
    budget_money: float = 0.0
    """The same in the currency of `price`; 0 = no limit."""
    price: tuple[float, float] = (0.0, 0.0)
    """Of a million prompt tokens and of a million completion tokens."""
    prompt_tokens: int = 64_000
    """Longest prompt that the writer reads, in tokens of the verifier; a longer window is asked for in parts."""
    completion_tokens: int = 8192
    """Longest answer, thinking included."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser; none has a default there, so that `settings` sees which were given."""
    group = parser.add_argument_group("writer llm", f"the API key comes from the variable {KEY_VARIABLE}")
    group.add_argument("--endpoint", metavar="URL", help="base URL of an OpenAI-compatible API")
    group.add_argument("--llm-model", metavar="NAME", help="name of the model there")
    group.add_argument("--tries", type=int, help="analyses asked for before a run is set aside (4)")
    group.add_argument("--concurrency", type=int, help="requests under way at the same time (16)")
    group.add_argument("--timeout-seconds", type=float, help="time for one whole answer (600)")
    group.add_argument("--budget-tokens", type=int, help="tokens that may be spent in this folder, all calls together")
    group.add_argument("--budget-money", type=float, help="the same in money; needs --price")
    group.add_argument(
        "--price", type=float, nargs=2, metavar=("IN", "OUT"), help="of a million prompt and completion tokens"
    )
    group.add_argument("--llm-prompt-tokens", type=int, help="longest prompt that the model reads (64000)")
    group.add_argument("--llm-completion-tokens", type=int, help="longest answer, thinking included (8192)")


_NAMES = {
    "endpoint": "endpoint",
    "llm_model": "model",
    "tries": "tries",
    "concurrency": "concurrency",
    "timeout_seconds": "timeout_seconds",
    "budget_tokens": "budget_tokens",
    "budget_money": "budget_money",
    "price": "price",
    "llm_prompt_tokens": "prompt_tokens",
    "llm_completion_tokens": "completion_tokens",
}
"""Option -> field."""


def settings(args: argparse.Namespace) -> Settings | None:
    """The settings given on the command line; None for another writer. Raises ConfigError with all that is wrong."""
    given = {field: value for name, field in _NAMES.items() if (value := getattr(args, name)) is not None}
    if args.writer != "llm":
        if given:
            options = ", ".join(_option(name) for name, field in _NAMES.items() if field in given)
            raise ConfigError(f"{options}: only for --writer llm, and the writer is {args.writer}.")
        return None
    problems = [f"{_option(name)} is missing" for name in ("endpoint", "llm_model") if _NAMES[name] not in given]
    for name, least in (("tries", 1), ("concurrency", 1), ("budget_tokens", 1), ("completion_tokens", 1)):
        if given.get(name, least) < least:
            problems.append(f"{name} is {given[name]}; at least {least}")
    if given.get("prompt_tokens", FEWEST_PROMPT_TOKENS) < FEWEST_PROMPT_TOKENS:
        problems.append(f"--llm-prompt-tokens is {given['prompt_tokens']}; at least {FEWEST_PROMPT_TOKENS}")
    for name in ("timeout_seconds", "budget_money"):
        if not given.get(name, 1) > 0:
            problems.append(f"{_option(name)} is {given[name]}; more than 0")
    if min(given.get("price", [0])) < 0:
        problems.append(f"--price is {given['price']}; at least 0 each")
    if "budget_money" in given and not sum(given.get("price", [])) > 0:
        problems.append("--budget-money needs --price IN OUT, the price of a million tokens")
    if "endpoint" in given:
        given["endpoint"], problem = _endpoint(given["endpoint"])
        problems += [problem] if problem else []
    if problems:
        raise ConfigError("; ".join(problems))
    return Settings(**{**given, **({"price": tuple(given["price"])} if "price" in given else {})})


def key() -> str:
    """The API key, "" when there is none (a server of one's own often asks for none)."""
    found = os.environ.get(KEY_VARIABLE, "").strip()
    # A header library would quote such a key in its error message.
    if not found.isascii() or not found.isprintable() or " " in found:
        raise ConfigError(f"{KEY_VARIABLE} holds blanks or characters that no key has. Set it again.")
    return found


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _endpoint(url: str) -> tuple[str, str | None]:
    """The URL as it is used, and what is wrong with it."""
    try:
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            # Not shown: it may hold a password.
            return "", f"--endpoint holds a user, a query or a fragment; a key belongs into {KEY_VARIABLE}"
        if parts.scheme not in ("http", "https") or not parts.hostname or (parts.port or 1) < 1:
            raise ValueError
    except ValueError:
        return "", f"--endpoint is {shown(url)}; an address such as http://127.0.0.1:8000/v1"
    path = parts.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
    return urlunsplit((parts.scheme, parts.netloc, path, "", "")), None
