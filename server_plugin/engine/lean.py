"""The lean runner of the spyre target: what upstream's scheduler needs of a step, without tensors.

Token ids, tkv, left padding and prefix cache hit length come out as from
`ChunkedPrefillModelRunner` (sendnn-inference 2.6.3), whose chunk plan and padding rules these are;
a test holds the two side by side. There are no logits here: what needs them is refused before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sendnn_inference.platform import SpyrePlatform
from sendnn_inference.v1.worker.spyre_model_runner import SpyreModelRunnerOutput

from server_plugin.engine.tokens import wanted_token


@dataclass
class _State:
    """One request in the runner. ``blocks`` are allocated KV blocks."""

    params: Any
    prompt_tokens: int
    computed_tokens: int
    blocks: int
    padding_blocks: int
    usable_blocks: int
    output_tokens: int = 0


class LeanRunner:
    """Keeps a few numbers per request and answers each step with them."""

    def __init__(self, vllm_config: Any, plain_tokens: list[int]) -> None:
        self._plain = plain_tokens
        self._block_size = SpyrePlatform.get_block_size()
        self._chunk_blocks = vllm_config.scheduler_config.max_num_batched_tokens // self._block_size
        self._prefix_caching = vllm_config.cache_config.enable_prefix_caching
        self._requests: dict[str, _State] = {}

    def execute(self, scheduler_output: Any) -> Any:
        """Answer one step.

        Raises:
            AssertionError: the batch exceeds the tkv limit, as upstream's runner asserts.
        """
        cached = scheduler_output.scheduled_cached_reqs
        self._update(scheduler_output, cached)
        if not scheduler_output.total_num_scheduled_tokens:
            return self._output([], [], tkv=0)
        for request in scheduler_output.scheduled_new_reqs:
            return self._prefill(request.req_id, scheduler_output)
        (first, *others) = cached.req_ids
        state = self._requests[first]
        if not others and state.prompt_tokens > state.computed_tokens:
            return self._prefill(first, scheduler_output)
        return self._decode(cached.req_ids)

    def _update(self, scheduler_output: Any, cached: Any) -> None:
        for request_id in scheduler_output.finished_req_ids:
            self._requests.pop(request_id, None)
        for request in scheduler_output.scheduled_new_reqs:
            self._requests[request.req_id] = self._new_state(request)
        for request_id, blocks, computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            state = self._requests[request_id]
            state.computed_tokens = computed
            if blocks:
                state.blocks += len(blocks[0])

    def _new_state(self, request: Any) -> _State:
        prompt_tokens = len(request.prompt_token_ids)
        prompt_blocks = math.ceil(prompt_tokens / self._block_size)
        chunks = math.ceil(prompt_blocks / self._chunk_blocks)
        padding = chunks * self._chunk_blocks - prompt_blocks
        usable = 0
        if self._prefix_caching:
            hit = request.num_computed_tokens // self._block_size
            # The last chunk is always computed again: it gives the first token.
            full_chunks = min((padding + hit) // self._chunk_blocks, chunks - 1)
            usable = max(0, full_chunks * self._chunk_blocks - padding)
        return _State(
            params=request.sampling_params,
            prompt_tokens=prompt_tokens,
            computed_tokens=request.num_computed_tokens,
            blocks=len(request.block_ids[0]),
            padding_blocks=padding,
            usable_blocks=usable,
        )

    def _prefill(self, request_id: str, scheduler_output: Any) -> Any:
        state = self._requests[request_id]
        scheduled = scheduler_output.num_scheduled_tokens[request_id]
        tkv = state.prompt_tokens
        self._check_limit(tkv, 1)
        if state.computed_tokens + scheduled < state.prompt_tokens:
            hit = {request_id: state.usable_blocks * self._block_size}
            return self._output([request_id], [], tkv, prefix_cache_hit_len=hit)
        return self._output([request_id], [[self._token(state)]], tkv)

    def _decode(self, request_ids: list[str]) -> Any:
        states = [self._requests[request_id] for request_id in request_ids]
        longest = max(state.blocks for state in states)
        tkv = 0
        for state in states:
            state.padding_blocks = longest - state.blocks
            padded = state.padding_blocks * self._block_size + state.computed_tokens + 1
            tkv = max(tkv, padded)
        self._check_limit(tkv, len(states))
        return self._output(request_ids, [[self._token(state)] for state in states], tkv)

    def _token(self, state: _State) -> int:
        token, _ = wanted_token(state.params, state.output_tokens, self._plain)
        state.output_tokens += 1
        return token

    @staticmethod
    def _check_limit(tkv: int, batch_size: int) -> None:
        limit = SpyrePlatform.get_max_batch_tkv_limit()
        assert tkv * batch_size <= limit, (
            f"Exceeded max batch tkv limit {limit}! tkv: {tkv}, batch_size: {batch_size}"
        )

    def _output(
        self, request_ids: list[str], tokens: list[list[int]], tkv: int, **more: Any
    ) -> Any:
        padding = {
            request_id: self._requests[request_id].padding_blocks * self._block_size
            for request_id in request_ids
        }
        return SpyreModelRunnerOutput(
            req_ids=request_ids,
            req_id_to_index={request_id: index for index, request_id in enumerate(request_ids)},
            sampled_token_ids=tokens,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
            tkv=tkv,
            left_padding=padding,
            **more,
        )
