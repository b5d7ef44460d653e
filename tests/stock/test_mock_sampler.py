"""The mocked model's sampler chooses as the real one does."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.e2e  # not for a server, but for the half minute that importing vLLM takes

ROWS, VOCABULARY = 8, 1000


def test_the_largest_logit_and_the_first_of_equal_ones() -> None:
    from vllm.v1.sample.sampler import Sampler

    from server_plugin.engine.mock_model import FastSampler

    logits = torch.randn((ROWS, VOCABULARY), generator=torch.Generator().manual_seed(1))
    logits[1] = 0.0
    logits[2, 10:] = float("-inf")
    logits[3, [7, 70, 700]] = 99.0
    logits[4] = float("-inf")
    assert torch.equal(FastSampler.greedy_sample(logits), Sampler.greedy_sample(logits))
