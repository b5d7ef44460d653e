"""Which token a simulated model gives next: plain words, and the end where it is due."""

from __future__ import annotations

import itertools
import math
from typing import Any

from vllm.tokenizers import get_tokenizer

from server_plugin.sim import fields as sim_fields

END_ATTRIBUTE = "_sendnn_sim_end_from"
"""Attribute of a request's parameters: read once, not for each of its tokens."""


def tokenizer_of(model_config: Any) -> Any | None:
    """The model's tokenizer; None where the server runs without one."""
    if model_config.skip_tokenizer_init:
        return None
    return get_tokenizer(
        model_config.tokenizer,
        tokenizer_mode=model_config.tokenizer_mode,
        trust_remote_code=model_config.trust_remote_code,
    )


def plain_tokens(model_config: Any, count: int = 16) -> list[int]:
    """Token ids that decode to a plain word each.

    A token that is only a part of a UTF-8 character would make the detokenizer wait for the rest,
    which costs milliseconds a token.

    Raises:
        ValueError: the vocabulary has no such token.
    """
    size = model_config.get_vocab_size()
    tokenizer = tokenizer_of(model_config)
    if tokenizer is None:
        return list(range(min(10, size - 1), min(10 + count, size)))
    special = set(tokenizer.all_special_ids)
    candidates = (t for t in range(min(size, len(tokenizer))) if t not in special)
    found = list(itertools.islice((t for t in candidates if _is_word(tokenizer, t)), count))
    if not found:
        raise ValueError(f"the tokenizer {model_config.tokenizer} has no token that is a word")
    return found


def _is_word(tokenizer: Any, token: int) -> bool:
    text = tokenizer.decode([token])
    return bool(text.isascii() and text.strip().isalpha() and len(text.strip()) > 1)


def wanted_token(params: Any, position: int, plain: list[int]) -> tuple[int, int]:
    """(Wanted, fallback) token at an output position, counted from 0.

    At the injected output length the wanted one is the end-of-sequence token, unless the request
    ignores it or asks for more tokens.
    """
    fallback = plain[position % len(plain)]
    end_from = getattr(params, END_ATTRIBUTE, None)
    if end_from is None:
        end_from = _end_from(params)
        setattr(params, END_ATTRIBUTE, end_from)
    return (fallback if position < end_from else params.eos_token_id), fallback


def _end_from(params: Any) -> float:
    """Output position from which on the request's end is due; infinite where it never is."""
    length = sim_fields.parse(params.extra_args).output_tokens
    if length is None or params.eos_token_id is None:
        return math.inf
    return max(length - 1, params.min_tokens)
