"""The mocked model of the spyre target: no weights, logits that pick the token we want.

The real sampler and logits processors of sendnn-inference run on these logits, so grammars,
penalties and minimum lengths keep their say.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from sendnn_inference.v1.sample.spyre_sampler import SpyreSampler

from server_plugin.engine.tokens import plain_tokens, wanted_token
from server_plugin.sim.host_times import now_ns

WANTED = 1e4
FALLBACK = 5e3
"""Logits of the wanted token, and of the one to fall back on where a processor forbids the first;
all others are 0. Wide apart, so that temperature and penalties do not change the choice."""


class FastSampler(SpyreSampler):
    """The real sampler; its search for the largest logit by numpy, ten times as fast as torch's on
    a CPU and with the same answer (the first of equal ones)."""

    @staticmethod
    def greedy_sample(logits: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(logits.numpy().argmax(axis=-1)).view(-1)


class MockCausalLM:
    """Stands in for `SpyreCausalLM`: what `ChunkedPrefillModelRunner` calls on its model."""

    is_multimodal = False
    mm_model_utils = None

    def __init__(self, vllm_config: Any, runner: Any) -> None:
        self._runner = runner
        self._vocab_size = vllm_config.model_config.get_vocab_size()
        self._plain = plain_tokens(vllm_config.model_config)
        self.sampler = FastSampler(vllm_config=vllm_config)
        self.fms_model = SimpleNamespace(config=SimpleNamespace(src_vocab_size=self._vocab_size))
        self._spent_ns = 0
        self.indices = torch.ones(0)
        self.n_pads_right = 0

    def __call__(
        self, input_ids_or_embeds: Any, positions: Any, masks: Any, is_prompt: bool
    ) -> torch.Tensor:
        """Logits of shape (batch, vocabulary), rows in the order of the runner's batch."""
        began_ns = now_ns()
        batch = self._runner.prefill_batch if is_prompt else self._runner.input_batch
        request_ids = batch.sorted_requests_ids
        choices = [self._choice(self._runner.requests[request_id]) for request_id in request_ids]
        logits = torch.zeros((len(request_ids), self._vocab_size), dtype=torch.float32)
        wanted, fallback = torch.tensor(choices).T.unsqueeze(2)
        logits.scatter_(1, fallback, FALLBACK).scatter_(1, wanted, WANTED)
        self._spent_ns += now_ns() - began_ns
        return logits

    def _choice(self, request: Any) -> tuple[int, int]:
        position = len(request.output_token_ids)
        return wanted_token(request.sampling_params, position, self._plain)

    def take_spent_ns(self) -> int:
        """Real time of the forward passes since the last call."""
        spent_ns, self._spent_ns = self._spent_ns, 0
        return spent_ns

    def sample(self, logits: torch.Tensor, sampling_metadata: Any) -> Any:
        """The real sampler."""
        return self.sampler(logits, sampling_metadata)

    def get_maybe_mm_embeddings(self, input_ids: Any, mm_features: Any, is_decode: bool) -> None:
        """Text models work on token ids."""

    def set_past_key_value_states(self, num_blocks: int) -> None:
        """No KV cache is kept: nothing is computed."""
