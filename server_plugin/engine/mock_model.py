"""The mocked model of the spyre target: no weights, logits that pick the token we want.

The real sampler and logits processors of sendnn-inference run on these logits, so grammars,
penalties and minimum lengths keep their say.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import torch
from sendnn_inference.v1.sample.spyre_sampler import SpyreSampler
from vllm.tokenizers import get_tokenizer

from server_plugin.sim import fields as sim_fields

WANTED = 1e4
FALLBACK = 5e3
"""Logits of the wanted token, and of the one to fall back on where a processor forbids the first;
all others are 0. Wide apart, so that temperature and penalties do not change the choice."""


def plain_tokens(vllm_config: Any, count: int = 16) -> list[int]:
    """Token ids that decode to a plain word each.

    A token that is only a part of a UTF-8 character would make the detokenizer wait for the rest,
    which costs milliseconds a token.
    """
    config = vllm_config.model_config
    size = config.get_vocab_size()
    if config.skip_tokenizer_init:
        return list(range(min(10, size - 1), min(10 + count, size)))
    tokenizer = get_tokenizer(
        config.tokenizer,
        tokenizer_mode=config.tokenizer_mode,
        trust_remote_code=config.trust_remote_code,
    )
    special = set(tokenizer.all_special_ids)
    candidates = (t for t in range(min(size, len(tokenizer))) if t not in special)
    found = list(itertools.islice((t for t in candidates if _is_word(tokenizer, t)), count))
    if not found:
        raise ValueError(f"the tokenizer {config.tokenizer} has no token that is a plain word")
    return found


def _is_word(tokenizer: Any, token: int) -> bool:
    text = tokenizer.decode([token])
    return bool(text.isascii() and text.strip().isalpha() and len(text.strip()) > 1)


def wanted_token(request: Any, plain: list[int]) -> tuple[int, int]:
    """(Wanted, fallback) token of a request's next output position.

    At the injected output length the wanted one is the end-of-sequence token, unless the request
    ignores it.
    """
    params = request.sampling_params
    position = len(request.output_token_ids)
    fallback = plain[position % len(plain)]
    length = sim_fields.parse(params.extra_args).output_tokens
    if length is not None and position + 1 >= length and params.eos_token_id is not None:
        return params.eos_token_id, fallback
    return fallback, fallback


class MockCausalLM:
    """Stands in for `SpyreCausalLM`: what `ChunkedPrefillModelRunner` calls on its model."""

    is_multimodal = False
    mm_model_utils = None

    def __init__(self, vllm_config: Any, runner: Any) -> None:
        self._runner = runner
        self._vocab_size = vllm_config.model_config.get_vocab_size()
        self._plain = plain_tokens(vllm_config)
        self.sampler = SpyreSampler(vllm_config=vllm_config)
        self.fms_model = SimpleNamespace(config=SimpleNamespace(src_vocab_size=self._vocab_size))
        self.indices = torch.ones(0)
        self.n_pads_right = 0

    def __call__(
        self, input_ids_or_embeds: Any, positions: Any, masks: Any, is_prompt: bool
    ) -> torch.Tensor:
        """Logits of shape (batch, vocabulary), rows in the order of the runner's batch."""
        batch = self._runner.prefill_batch if is_prompt else self._runner.input_batch
        request_ids = batch.sorted_requests_ids
        logits = torch.zeros((len(request_ids), self._vocab_size), dtype=torch.float32)
        for row, request_id in enumerate(request_ids):
            wanted, fallback = wanted_token(self._runner.requests[request_id], self._plain)
            logits[row, fallback] = FALLBACK
            logits[row, wanted] = WANTED
        return logits

    def sample(self, logits: torch.Tensor, sampling_metadata: Any) -> Any:
        """The real sampler."""
        return self.sampler(logits, sampling_metadata)

    def get_maybe_mm_embeddings(self, input_ids: Any, mm_features: Any, is_decode: bool) -> None:
        """Text models work on token ids."""

    def set_past_key_value_states(self, num_blocks: int) -> None:
        """No KV cache is kept: nothing is computed."""
