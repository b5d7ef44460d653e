"""The stock target's worker and scheduler: vLLM decides, nothing is computed."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from typing import Any

from vllm.logger import init_logger
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, DraftTokenIds, ModelRunnerOutput
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

from server_plugin import settings as sim_settings
from server_plugin.engine import kv_memory
from server_plugin.engine.scheduler import SimSchedulerMixin
from server_plugin.engine.stock_platform import GIB, PIPELINE_KEY
from server_plugin.engine.stock_sampling import Drafter, TokenChooser, ended, logprobs
from server_plugin.sim.arrival import Arrival

logger = init_logger(__name__)


class SimStockScheduler(SimSchedulerMixin, Scheduler):
    """vLLM's scheduler with its steps charged and its preemptions counted."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._admitted = itertools.count()
        self._draft_ns = round(sim_settings.load(os.environ).draft_ms * 1e6)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        if scheduler_output.scheduled_spec_decode_tokens:
            # Before the step's own cost is charged, so that its duration holds both.
            self.sim.clock.charge(self._draft_ns)
        return super().update_from_output(scheduler_output, model_runner_output)

    def add_request(self, request: Any) -> None:
        request.arrival_time = Arrival(request.arrival_time, next(self._admitted))
        super().add_request(request)


@dataclass
class _Request:
    """What the worker keeps of a request between steps."""

    params: Any
    prompt_tokens: int
    output_tokens: int = 0


class SimStockWorker(WorkerBase):
    """One process for all ranks: lays out the KV cache, then returns tokens without a model."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._requests: dict[str, _Request] = {}
        self._due: list[str] = []
        self._complete: set[str] = set()
        self._loras: set[int] = set()
        self._drafts: dict[str, int] = {}
        self._drafter: Drafter | None = None

    # Start-up

    def init_device(self) -> None:
        """There is none."""

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        """Lay the model out and find the pipeline stage that leaves least room for KV blocks."""
        self._memory_bytes = device_memory_bytes(self.cache_config.gpu_memory_utilization)
        stages = self.vllm_config.additional_config.get(PIPELINE_KEY, 1)
        self._rank = kv_memory.tightest_rank(self.vllm_config, stages, self._memory_bytes)
        self._chooser = TokenChooser(self.model_config)
        if self.speculative_config is not None:
            rate = sim_settings.load(os.environ).acceptance_rate
            self._drafter = Drafter(self.speculative_config.num_speculative_tokens, rate)
        logger.info(
            "Model weights of one simulated device: %.2f GiB; nothing was read from disk.",
            self._rank.weights_bytes / GIB,
        )

    def get_kv_cache_spec(self) -> dict[str, Any]:
        return self._rank.kv_cache_spec(self.vllm_config)

    def determine_available_memory(self) -> int:
        """Bytes for the KV cache of one rank.

        Raises:
            UsageError: the weights alone do not fit.
        """
        fixed = self.cache_config.kv_cache_memory_bytes
        return fixed or kv_memory.available_bytes(self._rank, self._memory_bytes)

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        """No KV cache is kept."""

    def compile_or_warm_up_model(self) -> CompilationTimes:
        return CompilationTimes(language_model=0.0, encoder=0.0)

    def initialize_cache(self, num_gpu_blocks: int, num_cpu_blocks: int) -> None:
        """No KV cache is kept."""

    def update_max_model_len(self, max_model_len: int) -> None:
        self.model_config.max_model_len = max_model_len

    def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    def synchronize_device(self) -> None:
        """There is none."""

    # Adapters are names: they change no token and no memory.

    def add_lora(self, lora_request: Any) -> bool:
        self._loras.add(lora_request.lora_int_id)
        return True

    def remove_lora(self, lora_id: int) -> bool:
        self._loras.discard(lora_id)
        return True

    def pin_lora(self, lora_id: int) -> bool:
        return lora_id in self._loras

    def list_loras(self) -> set[int]:
        return set(self._loras)

    # Steps

    def execute_model(self, scheduler_output: Any) -> ModelRunnerOutput | None:
        """Note which requests get a token in this step; `sample_tokens` gives it to them."""
        computed = self._update_requests(scheduler_output)
        scheduled = scheduler_output.num_scheduled_tokens
        if not scheduled:
            return EMPTY_MODEL_RUNNER_OUTPUT
        self._due = list(scheduled)
        drafts = scheduler_output.scheduled_spec_decode_tokens
        self._drafts = {request_id: len(tokens) for request_id, tokens in drafts.items()}
        self._complete = {
            request_id
            for request_id, tokens in scheduled.items()
            if computed[request_id] + tokens >= self._total_tokens(request_id)
        }
        return None

    def sample_tokens(self, grammar_output: Any) -> ModelRunnerOutput:
        """One token for each request whose prompt is complete."""
        masks = grammar_masks(grammar_output)
        sampled: list[list[int]] = []
        for request_id in self._due:
            complete = request_id in self._complete
            sampled.append(self._sample(request_id, masks.get(request_id)) if complete else [])
        wanted = max((self._logprobs(request_id) for request_id in self._due), default=-1)
        return ModelRunnerOutput(
            req_ids=self._due,
            req_id_to_index={request_id: index for index, request_id in enumerate(self._due)},
            sampled_token_ids=sampled,
            logprobs=logprobs(sampled, wanted, self.vocab_size) if wanted >= 0 else None,
        )

    def _sample(self, request_id: str, mask: Any | None) -> list[int]:
        """A request's tokens in this step: the accepted drafts, and one more."""
        request = self._requests[request_id]
        params, position = request.params, request.output_tokens
        drafts = self._drafts.get(request_id, 0)
        count = 1
        if drafts and self._drafter is not None:
            count += self._drafter.accepted(params, position, drafts)
        tokens: list[int] = []
        while len(tokens) < count and not ended(params, position, tokens):
            tokens.append(self._chooser.choose(params, position + len(tokens), mask))
        request.output_tokens += len(tokens)
        return tokens

    def take_draft_token_ids(self) -> DraftTokenIds | None:
        """Drafts for the next step; which tokens they are does not matter."""
        if self._drafter is None:
            return None
        drafts = [0] * self._drafter.tokens
        names = [request_id for request_id in self._due if request_id in self._complete]
        return DraftTokenIds(names, [list(drafts) for _ in names])

    def _update_requests(self, scheduler_output: Any) -> dict[str, int]:
        """Tokens computed before this step, by request."""
        for request_id in scheduler_output.finished_req_ids:
            self._requests.pop(request_id, None)
        computed = {}
        for new in scheduler_output.scheduled_new_reqs:
            self._requests[new.req_id] = new_request(new)
            computed[new.req_id] = new.num_computed_tokens
        cached = scheduler_output.scheduled_cached_reqs
        for index, request_id in enumerate(cached.req_ids):
            self._requests[request_id].output_tokens = cached.num_output_tokens[index]
            computed[request_id] = cached.num_computed_tokens[index]
        return computed

    def _total_tokens(self, request_id: str) -> int:
        request = self._requests[request_id]
        return request.prompt_tokens + request.output_tokens

    def _logprobs(self, request_id: str) -> int:
        """Alternatives that a request asks for; -1 where it asks for no log-probabilities."""
        wanted = self._requests[request_id].params.logprobs
        return -1 if wanted is None else int(wanted)


def new_request(new: Any) -> _Request:
    """A request as the scheduler hands it over. With vLLM's newer model runner one that resumes
    after a preemption is handed over anew, together with the tokens it has generated."""
    prompt_tokens = len(new.prompt_token_ids)
    known_tokens = prompt_tokens if new.prefill_token_ids is None else len(new.prefill_token_ids)
    return _Request(new.sampling_params, prompt_tokens, known_tokens - prompt_tokens)


def device_memory_bytes(utilization: float) -> int:
    """Bytes of one simulated device that vLLM may use."""
    return int(sim_settings.load(os.environ).memory_gb * GIB * utilization)


def grammar_masks(grammar_output: Any) -> dict[str, Any]:
    """Row of allowed tokens, as bits of int32 words, by request."""
    if grammar_output is None:
        return {}
    return dict(
        zip(
            grammar_output.structured_output_request_ids,
            grammar_output.grammar_bitmask,
            strict=False,
        )
    )
