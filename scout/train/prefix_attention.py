"""Attention of a packed row [prompt, reply, reply, ...] in which every reply sees the prompt and itself, nothing else.

On CPU the replies' attention over the prompt and that over themselves are two calls of PyTorch's flash kernel whose
results are merged by their log-sum-exp, so that the prompt's keys are neither copied for each reply nor for each query
head. Given the merged output and log-sum-exp, the kernel's own backward yields each part's share of the gradient; ring
attention (arXiv 2310.01889) rests on the same. Elsewhere FlexAttention computes the whole row with a block mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

KEYWORD = "scout_layout"
"""Argument of a model's forward pass that carries the `Layout`; without it attention is the model's own."""
_PREFIX = "scout_shared_prefix_"
_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
Attention = Callable[..., tuple[torch.Tensor, torch.Tensor | None]]


class Group(NamedTuple):
    """Where one prompt and the replies to it stand in the packed row; the replies follow the prompt in order."""

    start: int
    prompt: int
    """Tokens of the prompt."""
    replies: tuple[int, ...]
    """Tokens of each reply, 1 or more."""


class Layout:
    """The groups of one packed row, and what attention derives from them once for all layers."""

    def __init__(self, groups: Sequence[Group], predicting: torch.Tensor) -> None:
        """predicting: places of the row whose next token is scored, (M,)."""
        self.groups = tuple(groups)
        self.predicting = predicting
        self._masks: dict[tuple[int | None, torch.device], Any] = {}

    @property
    def tokens(self) -> int:
        """Length of the packed row."""
        return sum(group.prompt + sum(group.replies) for group in self.groups)

    def longest(self) -> int:
        """Tokens of the longest prompt with one reply."""
        return max(group.prompt + max(group.replies, default=0) for group in self.groups)

    def block_mask(self, window: int | None, device: torch.device) -> Any:
        """FlexAttention's mask of the row, made once."""
        from torch.nn.attention.flex_attention import create_block_mask

        key = (window, device)
        if key not in self._masks:
            group, reply, place = (values.to(device) for values in self._of_tokens())

            def seen(_b: Any, _h: Any, at: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
                own = (reply[other] == 0) | (reply[other] == reply[at])
                near = place[other] <= place[at]
                if window is not None:
                    near = near & (place[at] - place[other] < window)
                return (group[at] == group[other]) & own & near

            self._masks[key] = create_block_mask(
                seen, None, None, self.tokens, self.tokens, device=device, _compile=device.type == "cuda"
            )
        return self._masks[key]

    def _of_tokens(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of each token its group, its reply (0: the prompt, else from 1) and its place in prompt and reply."""
        groups: list[int] = []
        replies: list[int] = []
        places: list[int] = []
        for number, group in enumerate(self.groups):
            for reply, length in enumerate((group.prompt, *group.replies)):
                begin = group.prompt if reply else 0
                groups += [number] * length
                replies += [reply] * length
                places += range(begin, begin + length)
        return torch.tensor(groups), torch.tensor(replies), torch.tensor(places)


def install(model: PreTrainedModel) -> str | None:
    """Let `model(..., scout_layout=layout)` attend along a layout and return the hidden states of `predicting` alone.

    Returns why this model cannot, or None. Any other forward pass stays as it was.
    """
    reason = _unsupported(model)
    if reason:
        return reason
    config = model.config.get_text_config()
    name = config._attn_implementation
    if not name.startswith(_PREFIX):
        ALL_ATTENTION_FUNCTIONS.register(_PREFIX + name, _or_own(ALL_ATTENTION_FUNCTIONS[name]))
        ALL_MASK_ATTENTION_FUNCTIONS.register(_PREFIX + name, ALL_MASK_ATTENTION_FUNCTIONS[name])
        config._attn_implementation_internal = _PREFIX + name
        model.base_model.register_forward_hook(_only_predicting, with_kwargs=True)
    return None


def _unsupported(model: PreTrainedModel) -> str | None:
    config = model.config.get_text_config()
    name = str(config._attn_implementation)
    if not name.startswith(_PREFIX) and (
        name not in ALL_ATTENTION_FUNCTIONS or name not in ALL_MASK_ATTENTION_FUNCTIONS._global_mapping
    ):
        return f"model.attention is {name}; sdpa and flex_attention go through an interface that can be shared"
    if not model._can_set_attn_implementation():
        return f"{type(model).__name__} computes its attention itself"
    other = set(getattr(config, "layer_types", None) or []) - {"full_attention", "sliding_attention"}
    if other:
        return f"{type(model).__name__} has layers that are no plain attention ({', '.join(sorted(other))})"
    if getattr(config, "num_kv_shared_layers", 0):
        return f"{type(model).__name__} takes keys from other layers, through its cache"
    if getattr(config, "attn_logit_softcapping", None):
        return f"{type(model).__name__} caps the logits of its attention"
    return None


def _or_own(own: Attention) -> Attention:
    def attention(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        layout = kwargs.pop(KEYWORD, None)
        if layout is None:
            return own(module, query, key, value, attention_mask, **kwargs)
        window = kwargs.get("sliding_window")
        out = attend(query, key, value, layout, kwargs.get("scaling"), window)
        return out.transpose(1, 2), None

    return attention


def _only_predicting(_: Any, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
    """Keeps the hidden states that predict a reply's token, so that the head runs on no other."""
    layout = kwargs.get(KEYWORD)
    if layout is not None:
        output.last_hidden_state = output.last_hidden_state[:, layout.predicting]
    return output


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layout: Layout,
    scale: float | None = None,
    window: int | None = None,
) -> torch.Tensor:
    """Attention along the layout.

    query: (1, H, N, D); key, value: (1, K, N, D) with H a multiple of K; N tokens of the layout. scale: 1/sqrt(D) if
    None. window: a token sees so many places back, itself included; None sees all. Returns (1, H, N, D).
    """
    kind = query.device.type
    if torch.is_autocast_enabled(kind):
        query, key, value = (part.to(torch.get_autocast_dtype(kind)) for part in (query, key, value))
    if window is not None and window >= layout.longest():
        window = None
    if kind != "cpu":
        return _flex(query, key, value, layout, scale, window)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    outs = []
    for group in layout.groups:
        middle, end = group.start + group.prompt, group.start + group.prompt + sum(group.replies)
        asked, keys, values = (part[:, :, group.start : middle] for part in (query, key, value))
        replies = [part[:, :, middle:end] for part in (query, key, value)]
        outs.append(_causal(asked, keys, values, scale, window))
        if not group.replies:
            continue
        if window is None:
            outs.append(_Replies.apply(replies[0], keys, values, *replies[1:], group.replies, scale))
        else:
            outs.append(_near(replies, keys, values, group.replies, scale, window))
    return torch.cat(outs, dim=2)


_compiled_flex: Any = None


def _flex(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: Layout, scale: float | None, window: int | None
) -> torch.Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    global _compiled_flex
    if _compiled_flex is None:
        _compiled_flex = torch.compile(flex_attention) if query.device.type == "cuda" else flex_attention
    mask = layout.block_mask(window, query.device)
    out: torch.Tensor = _compiled_flex(query, key, value, block_mask=mask, scale=scale, enable_gqa=True)
    return out


def _causal(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, window: int | None
) -> torch.Tensor:
    tokens = query.shape[2]
    if window is None or window >= tokens:
        return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=True)
    mask = _band(tokens, tokens, window, query.device)
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=True)


def _band(queries: int, keys: int, window: int, device: torch.device) -> torch.Tensor:
    """Which of the last `keys` places each of the last `queries` places sees, (queries, keys)."""
    at = torch.arange(keys - queries, keys, device=device)[:, None]
    other = torch.arange(keys, device=device)[None]
    return (other <= at) & (at - other < window)


def _near(
    replies: Sequence[torch.Tensor],
    keys: torch.Tensor,
    values: torch.Tensor,
    lengths: Sequence[int],
    scale: float,
    window: int,
) -> torch.Tensor:
    """Each reply over the prompt's last places and itself; a window is short, so these may be copied."""
    keys, values = keys[:, :, -window:], values[:, :, -window:]
    outs = []
    for query, key, value in zip(*(part.split(list(lengths), dim=2) for part in replies), strict=True):
        key, value = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
        mask = _band(query.shape[2], key.shape[2], window, query.device)
        outs.append(scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=True))
    return torch.cat(outs, dim=2)


class _Replies(torch.autograd.Function):
    """Attention of all replies to one prompt over the prompt and, causally, each over itself.

    query (1, H, M, D), prompt keys and values (1, K, P, D), own keys and values (1, K, M, D); M tokens of all replies.
    """

    @staticmethod
    def forward(ctx: Any, query: Any, keys: Any, values: Any, own_keys: Any, own_values: Any, lengths: Any, scale: Any):  # type: ignore[no-untyped-def]
        places = _Places(lengths, query.device)
        over_prompt, lse_prompt = _FLASH(_folded(query, keys), keys, values, 0.0, False, scale=scale)
        over_prompt = over_prompt.reshape(query.shape)
        lse_prompt = lse_prompt.reshape(query.shape[:3])
        own = [places.rows(part) for part in (query, _widened(own_keys, query), _widened(own_values, query))]
        over_own, lse_own = _FLASH(*own, 0.0, True, scale=scale)
        over_own, lse_own = places.packed(over_own), places.packed(lse_own[..., None])[..., 0]
        lse = torch.logaddexp(lse_prompt, lse_own)
        out = over_prompt * (lse_prompt - lse).exp()[..., None] + over_own * (lse_own - lse).exp()[..., None]
        out = out.to(query.dtype)
        ctx.save_for_backward(query, keys, values, own_keys, own_values, out, lse)
        ctx.places, ctx.scale = places, scale
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any):  # type: ignore[no-untyped-def]
        query, keys, values, own_keys, own_values, out, lse = ctx.saved_tensors
        places, scale = ctx.places, ctx.scale
        folded = [_folded(part, keys) for part in (grad, query, out)]
        folded_lse = lse.reshape(*folded[1].shape[:3])
        of_query, of_keys, of_values = _FLASH_BACKWARD(
            folded[0], folded[1], keys, values, folded[2], folded_lse, 0.0, False, scale=scale
        )
        wide = [_widened(part, query) for part in (own_keys, own_values)]
        rows = [places.rows(part) for part in (grad, query, *wide, out)]
        rows_lse = places.rows(lse[..., None])[..., 0].contiguous()
        own = _FLASH_BACKWARD(*rows, rows_lse, 0.0, True, scale=scale)
        own_query, own_of_keys, own_of_values = (places.packed(part) for part in own)
        narrowed = (
            part.reshape(1, keys.shape[1], -1, *part.shape[2:]).sum(dim=2) for part in (own_of_keys, own_of_values)
        )
        return of_query.reshape(query.shape) + own_query, of_keys, of_values, *narrowed, None, None


def _folded(part: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """(1, H, M, D) -> (1, K, H / K * M, D): the query heads that share keys, one behind the other."""
    return part.reshape(1, keys.shape[1], -1, part.shape[-1])


def _widened(part: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """(1, K, M, D) -> (1, H, M, D), each head's keys for all query heads that share them."""
    return part.repeat_interleave(query.shape[1] // part.shape[1], dim=1)


class _Places:
    """From packed replies (1, H, M, D) to one row a reply (G, H, T, D), zeros behind the shorter ones, and back."""

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        self.equal = len(set(lengths)) == 1
        self.count, self.longest = len(lengths), max(lengths)
        real = torch.arange(self.longest)[None] < torch.tensor(lengths)[:, None]
        self.real = real.to(device)
        # Places behind the end of a reply read the row of zeros that `rows` appends.
        begins = torch.tensor([0, *lengths[:-1]]).cumsum(0)[:, None]
        index = torch.where(real, begins + torch.arange(self.longest)[None], sum(lengths))
        self.index = index.flatten().to(device)

    def rows(self, part: torch.Tensor) -> torch.Tensor:
        heads, width = part.shape[1], part.shape[3]
        if not self.equal:
            part = torch.cat([part, part.new_zeros(1, heads, 1, width)], dim=2)[:, :, self.index]
        return part.reshape(heads, self.count, self.longest, width).transpose(0, 1)

    def packed(self, rows: torch.Tensor) -> torch.Tensor:
        flat = rows.transpose(0, 1).reshape(1, rows.shape[1], -1, rows.shape[3])
        return flat if self.equal else flat[:, :, self.real.flatten()]
