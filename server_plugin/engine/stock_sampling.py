"""Tokens and log-probabilities of the stock target, without logits."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from vllm.v1.outputs import LogprobsLists

from server_plugin.engine.tokens import plain_tokens, tokenizer_of, wanted_token
from server_plugin.sim import fields as sim_fields

CLOSING = '"}])>'
"""Characters that end what a grammar has open, in the order they are tried."""

SAMPLED_LOGPROB = math.log(0.9)
"""The sampled token has nine parts in ten; each further one a tenth of the one before."""


class TokenChooser:
    """Chooses each request's next token."""

    def __init__(self, model_config: Any) -> None:
        self._plain = plain_tokens(model_config)
        self._vocab_size = model_config.get_vocab_size()
        self._model_config = model_config
        self._order: np.ndarray[Any, Any] | None = None

    def choose(self, params: Any, position: int, mask: Any | None) -> int:
        """Next token at an output position counted from 0; ``mask`` is a row of a bitmask."""
        wanted, _ = wanted_token(params, position, self._plain)
        allowed = self._allowed(params, mask)
        if allowed is None:
            return wanted
        if mask is None:
            return wanted if allowed[wanted] else int(allowed.argmax())
        return self._in_grammar(params, position, wanted, allowed)

    def _allowed(self, params: Any, mask: Any | None) -> np.ndarray[Any, Any] | None:
        """Which tokens are allowed, as booleans; None where all are."""
        allowed = None
        if mask is not None:
            bits = np.unpackbits(
                np.ascontiguousarray(mask).view(np.uint8), count=self._vocab_size, bitorder="little"
            )
            allowed = bits.astype(bool)
        if params.allowed_token_ids:
            listed = np.zeros(self._vocab_size, dtype=bool)
            listed[params.allowed_token_ids] = True
            allowed = listed if allowed is None else allowed & listed
        return allowed if allowed is None or allowed.any() else None

    def _in_grammar(
        self, params: Any, position: int, wanted: int, allowed: np.ndarray[Any, Any]
    ) -> int:
        """The wanted token in the first half of the output, then whatever ends it soonest, so
        that the text is complete before the request's tokens run out."""
        length = sim_fields.parse(params.extra_args).output_tokens or params.max_tokens or 0
        if 2 * position < length and allowed[wanted]:
            return wanted
        end = params.eos_token_id
        if end is not None and allowed[end]:
            return int(end)
        order = self._closing_order()
        return int(order[allowed[order].argmax()])

    def _closing_order(self) -> np.ndarray[Any, Any]:
        """All tokens: closing characters, digits, the rest, and blanks last (a grammar may allow
        them for ever). Made once, for the first request that needs it."""
        if self._order is None:
            tokenizer = tokenizer_of(self._model_config)
            if tokenizer is None:
                self._order = np.arange(self._vocab_size)
            else:
                size = min(self._vocab_size, len(tokenizer))
                texts = tokenizer.batch_decode([[token] for token in range(size)])
                ranked = sorted(range(size), key=lambda token: closing_rank(texts[token]))
                self._order = np.array(ranked + list(range(size, self._vocab_size)))
        return self._order


@dataclass(frozen=True)
class Drafter:
    """Speculative decoding as a model: ``tokens`` drafts a step, each accepted with ``rate``."""

    tokens: int
    rate: float

    def accepted(self, params: Any, position: int, drafts: int) -> int:
        """How many of a step's drafts are accepted, up to the first that is not.

        Drawn for the request's number in its session and its output position, so that equal runs
        draw equally.
        """
        seq = sim_fields.parse(params.extra_args).seq
        for index in range(drafts):
            key = f"{seq}:{position}:{index}".encode()
            drawn = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") / 2**64
            if drawn >= self.rate:
                return index
        return drafts


def ended(params: Any, position: int, tokens: list[int]) -> bool:
    """True where a request is over after the ``tokens`` that it got from ``position`` on."""
    after = position + len(tokens)
    if not tokens:
        return False
    stops = tokens[-1] in params.all_stop_token_ids and not params.ignore_eos
    stops = stops or tokens[-1] in (params.stop_token_ids or ())
    return after >= (params.max_tokens or math.inf) or (stops and after > params.min_tokens)


def closing_rank(text: str) -> tuple[int, int]:
    """Sort key of a token's text: lower ends a grammar sooner."""
    if len(text) == 1 and text in CLOSING:
        return 0, CLOSING.index(text)
    if len(text) == 1 and text.isdigit():
        return 1, int(text) if text.isascii() else 10
    if not text.strip():
        return 4, len(text)
    return (2 if text.isascii() else 3), len(text)


def logprobs(sampled: list[list[int]], alternatives: int, vocab_size: int) -> LogprobsLists:
    """Plausible log-probabilities: the sampled token likeliest, then its neighbours by number.

    Rows follow the sampled tokens; columns are the sampled token, then the ``alternatives``
    likeliest ones, of which it is the first.
    """
    tokens = np.array([token for row in sampled for token in row], dtype=np.int32)
    offsets = np.arange(max(alternatives, 1), dtype=np.int32)
    likeliest = (tokens[:, None] + offsets[None, :]) % vocab_size
    values = SAMPLED_LOGPROB + math.log(0.1) * offsets
    columns = alternatives + 1
    ids = np.concatenate([tokens[:, None], likeliest], axis=1)[:, :columns]
    row = np.concatenate([[SAMPLED_LOGPROB], values])[:columns].astype(np.float32)
    return LogprobsLists(
        logprob_token_ids=ids,
        logprobs=np.tile(row, (len(tokens), 1)),
        sampled_token_ranks=np.ones(len(tokens), dtype=np.int32),
        cu_num_generated_tokens=[0, *np.cumsum([len(row) for row in sampled]).tolist()],
    )
