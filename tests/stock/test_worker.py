"""The worker's tokens for what the scheduler hands over, without a server."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from vllm import SamplingParams

from server_plugin.engine.stock import SimStockWorker
from server_plugin.engine.stock_sampling import Drafter, closing_rank, logprobs

pytestmark = pytest.mark.e2e  # not for a server, but for the half minute that importing vLLM takes

VOCABULARY = 100


class Chooser:
    """Chooses the position itself as the token."""

    def choose(self, params: Any, position: int, mask: Any) -> int:
        return position


@pytest.fixture
def worker() -> SimStockWorker:
    made = SimStockWorker.__new__(SimStockWorker)
    made._requests, made._due, made._complete, made._chooser = {}, [], set(), Chooser()
    made._drafts, made._drafter = {}, None
    made.model_config = SimpleNamespace(get_vocab_size=lambda: VOCABULARY)
    return made


def new(name: str, prompt: int, known: int | None = None, computed: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        req_id=name,
        prompt_token_ids=[1] * prompt,
        prefill_token_ids=None if known is None else [1] * known,
        num_computed_tokens=computed,
        sampling_params=SamplingParams(),
    )


def step(
    scheduled: dict[str, int],
    fresh: tuple[SimpleNamespace, ...] = (),
    cached: dict[str, tuple[int, int]] | None = None,
    finished: tuple[str, ...] = (),
    drafts: dict[str, int] | None = None,
) -> SimpleNamespace:
    cached = cached or {}
    return SimpleNamespace(
        num_scheduled_tokens=scheduled,
        scheduled_new_reqs=list(fresh),
        finished_req_ids=set(finished),
        scheduled_spec_decode_tokens={name: [0] * n for name, n in (drafts or {}).items()},
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=list(cached),
            num_computed_tokens=[computed for computed, _ in cached.values()],
            num_output_tokens=[outputs for _, outputs in cached.values()],
        ),
    )


def sampled(worker: SimStockWorker, scheduler_output: SimpleNamespace) -> dict[str, list[int]]:
    assert worker.execute_model(scheduler_output) is None
    output = worker.sample_tokens(None)
    return dict(zip(output.req_ids, output.sampled_token_ids, strict=True))


def test_a_token_comes_when_the_prompt_is_complete(worker: SimStockWorker) -> None:
    assert sampled(worker, step({"a": 5}, (new("a", 8),))) == {"a": []}
    assert sampled(worker, step({"a": 3}, cached={"a": (5, 0)})) == {"a": [0]}
    assert sampled(worker, step({"a": 1, "b": 4}, (new("b", 4),), {"a": (8, 1)})) == {
        "a": [1],
        "b": [0],
    }
    assert sampled(worker, step({"b": 1}, cached={"b": (4, 1)}, finished=("a",))) == {"b": [1]}


def test_after_a_preemption_the_generated_tokens_are_computed_again(worker: SimStockWorker) -> None:
    sampled(worker, step({"a": 8}, (new("a", 8),)))
    assert sampled(worker, step({"a": 6}, cached={"a": (0, 3)})) == {"a": []}
    assert sampled(worker, step({"a": 5}, cached={"a": (6, 3)})) == {"a": [3]}


def test_a_request_handed_over_anew_keeps_its_position(worker: SimStockWorker) -> None:
    resumed = new("a", 8, known=11)
    assert sampled(worker, step({"a": 10}, (resumed,))) == {"a": []}
    assert sampled(worker, step({"a": 1}, cached={"a": (10, 3)})) == {"a": [3]}


def test_a_step_without_tokens_needs_no_sampling(worker: SimStockWorker) -> None:
    output = worker.execute_model(step({}))
    assert output is not None
    assert output.req_ids == []


def test_accepted_drafts_come_in_one_step_and_end_with_the_request(worker: SimStockWorker) -> None:
    worker._drafter = Drafter(tokens=3, rate=1.0)
    request = new("a", 8)
    request.sampling_params = SamplingParams(max_tokens=6)
    assert sampled(worker, step({"a": 8}, (request,))) == {"a": [0]}
    proposed = worker.take_draft_token_ids()
    assert proposed is not None
    assert (proposed.req_ids, len(proposed.draft_token_ids[0])) == (["a"], 3)
    first = step({"a": 4}, cached={"a": (8, 1)}, drafts={"a": 3})
    assert sampled(worker, first) == {"a": [1, 2, 3, 4]}
    last = step({"a": 4}, cached={"a": (12, 5)}, drafts={"a": 3})
    assert sampled(worker, last) == {"a": [5]}


def test_drafts_are_accepted_at_their_rate_and_always_alike() -> None:
    params = SamplingParams()
    drafter = Drafter(tokens=3, rate=0.7)
    drawn = [drafter.accepted(params, position, 3) for position in range(4000)]
    assert drawn == [drafter.accepted(params, position, 3) for position in range(4000)]
    assert np.mean(drawn) == pytest.approx(0.7 + 0.7**2 + 0.7**3, abs=0.06)
    assert {Drafter(3, 0.0).accepted(params, p, 3) for p in range(50)} == {0}


def test_logprobs_rank_the_sampled_token_first() -> None:
    told = logprobs([[5], [], [99]], 3, VOCABULARY)
    assert told.logprob_token_ids.tolist() == [[5, 5, 6, 7], [99, 99, 0, 1]]
    assert told.logprobs[0].tolist() == pytest.approx(
        [math.log(p) for p in (0.9, 0.9, 0.09, 0.009)]
    )
    assert told.cu_num_generated_tokens == [0, 1, 1, 2]
    assert np.all(told.sampled_token_ranks == 1)
    only_sampled = logprobs([[5]], 0, VOCABULARY)
    assert only_sampled.logprob_token_ids.tolist() == [[5]]


def test_closing_characters_come_first_and_blanks_last() -> None:
    texts = [" ", "word", "}", '"', "3", "ü", "]", "\n\n"]
    assert sorted(texts, key=closing_rank) == ['"', "}", "]", "3", "word", "ü", " ", "\n\n"]
