"""Process environment for vLLM: no calls home, no hub, CPU threads; set before vLLM is imported or started."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

_QUIET = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
_DEFAULTS = {
    # Results go to stdout as JSON lines; vLLM would log there.
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

CPU_BATCH_TOKENS = 8192
"""Prompt tokens that vLLM on CPU reads at once; room for about twenty short prompts."""


def prepare(environment: MutableMapping[str, str] | None = None) -> MutableMapping[str, str]:
    """The environment (by default this process's own, changed in place) with what vLLM needs.

    What must not happen (a call home) is forced; the rest keeps a value that is already set.
    """
    target = os.environ if environment is None else environment
    target.update(_QUIET)
    for name, value in _DEFAULTS.items():
        target.setdefault(name, value)
    if not has_gpu():
        # One small function of vLLM's sampler is compiled at the first request with log-probabilities: 10 to 25 s.
        target.setdefault("TORCHDYNAMO_DISABLE", "1")
    bound = ",".join(map(str, cores(target)))
    if bound:
        target.setdefault("VLLM_CPU_OMP_THREADS_BIND", bound)
    return target


def cores(environment: Mapping[str, str] = os.environ) -> list[int]:
    """Numbers of the cores that vLLM may use: those of this process, at most OMP_NUM_THREADS; empty when unknown."""
    threads = environment.get("OMP_NUM_THREADS", "")
    found = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return found[: int(threads)] if threads.isdigit() and int(threads) > 0 else found


def engine_options(context_tokens: int, dtype: str) -> dict[str, Any]:
    """Arguments of vLLM's `LLM`, which are its server's options as well.

    context_tokens: longest prompt and reply together. dtype: number type of the weights on disk, "" when unknown.
    """
    options: dict[str, Any] = {
        "max_model_len": context_tokens,
        "logprobs_mode": "raw_logprobs",
        "generation_config": "vllm",  # sampling is ours: no top-k from the model's own generation config
        "enable_prefix_caching": True,
        "seed": 0,
    }
    if dtype == "float32":  # "auto" would halve the precision of a model that was kept in fp32 on purpose
        options["dtype"] = "float32"
    if not has_gpu():
        # Read in chunks, the prompt of a seeded request kills vLLM 0.31 on CPU ("CPU Generator does not use offset").
        options |= {
            "enforce_eager": True,
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": max(context_tokens, CPU_BATCH_TOKENS),
        }
    return options


def has_gpu() -> bool:
    """Whether vLLM will run on an accelerator."""
    import torch

    return torch.cuda.is_available()


def die_with_parent() -> None:
    """Runs in the child: the kernel (of Linux) sends it SIGTERM when we are killed and cannot stop it ourselves."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
