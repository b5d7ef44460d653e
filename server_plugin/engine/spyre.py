"""The spyre target: scheduler, worker and configuration of sendnn-inference, put on our clock.

Scheduler, model runner, input batch, sampler and constraint checks are upstream's; only the model
is mocked, and what touches a device or weights is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import sendnn_inference.v1.core.scheduler as upstream_scheduler
import torch
from sendnn_inference.v1.core.scheduler import ChunkedPrefillSpyreScheduler
from sendnn_inference.v1.worker.spyre_worker import SpyreWorker
from vllm.utils.torch_utils import set_random_seed
from vllm.v1.worker.worker_base import CompilationTimes

from server_plugin import settings as sim_settings
from server_plugin.engine import config
from server_plugin.engine.lean import LeanRunner
from server_plugin.engine.mock_model import MockCausalLM
from server_plugin.engine.scheduler import HOST_ATTRIBUTE, SimSchedulerMixin
from server_plugin.engine.tokens import plain_tokens
from server_plugin.sim.engine_sim import OpenStep
from server_plugin.sim.host_times import now_ns

SCHEDULER = f"{__name__}.SimSpyreScheduler"
WORKER = f"{__name__}.SimSpyreWorker"


class SimSpyreScheduler(SimSchedulerMixin, ChunkedPrefillSpyreScheduler):
    """Upstream's scheduler with its pauses and block shortages recorded."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        upstream_scheduler.time = self.sim_time()
        self._sim_available_blocks = 0
        self._sim_required_blocks = 0

    def sim_block_size(self) -> int:
        return int(self.block_size)

    def sim_tkv(self, step: OpenStep, output: Any) -> int:
        return int(output.tkv)

    def sim_queues(self) -> dict[str, list[Any]]:
        more = {
            "prefilling": list(self.ongoing_prefills),
            "paused": list(self.paused_decoding_requests),
        }
        return super().sim_queues() | more

    def sim_cold_start(self) -> None:
        super().sim_cold_start()
        self.tkv = 0
        self.step_is_prefill = False

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        self._sim_available_blocks = self._get_free_blocks() - self.total_reserved_blocks
        paused = {request.request_id for request in self.paused_decoding_requests}
        now_ns = self.sim.clock.now_ns
        output = super().schedule(*args, **kwargs)
        if paused or self.paused_decoding_requests:
            self._sim_record_pauses(paused, now_ns)
        return output

    def _sim_record_pauses(self, before: set[str], now_ns: int) -> None:
        after = {request.request_id for request in self.paused_decoding_requests}
        records = self.sim.recorder.records
        for request_id in sorted((before | after) & records.keys()):
            if request_id not in before:
                records[request_id].pause(now_ns)
            elif request_id not in after:
                records[request_id].resume(now_ns)

    # Upstream looks at one waiting request after the other: the blocks it needs, then whether it
    # may start, which takes its blocks from those available in this step.

    def _get_required_blocks(self, request: Any, max_output: bool = False) -> tuple[int, int]:
        cached, required = super()._get_required_blocks(request, max_output)
        self._sim_required_blocks = required
        record = self.sim.recorder.records.get(request.request_id)
        if record is not None and required > self._sim_available_blocks:
            record.was_missing_blocks = True
        return cached, required

    def can_schedule_prefill(self, request: Any) -> bool:
        allowed = bool(super().can_schedule_prefill(request))
        if allowed:
            self._sim_available_blocks -= self._sim_required_blocks
        return allowed


class SimSpyreWorker(SpyreWorker):
    """Upstream's worker without device, process group, weights and warm-up."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._host_ns: dict[str, int] = {}
        self._lean: LeanRunner | None = None
        if sim_settings.load(os.environ).runner == "lean":
            self._lean = LeanRunner(self.vllm_config, plain_tokens(self.model_config))

    def init_device(self) -> None:
        set_random_seed(self.model_config.seed)
        # Small tensors only: waking threads for them costs more than they save.
        torch.set_num_threads(1)
        self._env_initialized = True

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        self.model_runner._model = MockCausalLM(self.vllm_config, self.model_runner)

    def compile_or_warm_up_model(self) -> CompilationTimes:
        # Warm-up would run steps on a mock: nothing to learn, so nothing is charged or recorded.
        self.model_runner.complete_warmup()
        return CompilationTimes(language_model=0.0, encoder=0.0)

    # Both calls note where their real time went, for the scheduler to read off the output.

    def execute_model(self, scheduler_output: Any) -> Any:
        began_ns = now_ns()
        if self._lean is not None:
            output = self._lean.execute(scheduler_output)
            setattr(output, HOST_ATTRIBUTE, {"prepare": now_ns() - began_ns})
            return output
        output = super().execute_model(scheduler_output)
        mock_ns = self.model_runner.model.take_spent_ns()
        self._host_ns = {"prepare": now_ns() - began_ns - mock_ns, "mock": mock_ns}
        if output is not None:
            setattr(output, HOST_ATTRIBUTE, self._host_ns)
        return output

    def sample_tokens(self, grammar_output: Any) -> Any:
        began_ns = now_ns()
        output = super().sample_tokens(grammar_output)
        setattr(output, HOST_ATTRIBUTE, self._host_ns | {"sample": now_ns() - began_ns})
        return output


def check_and_update_config(original: Callable[[Any], None], vllm_config: Any) -> None:
    """Wraps `SpyrePlatform.check_and_update_config`: upstream decides, then our classes go in.

    Raises:
        UsageError: a kind of model or deployment that the simulation does not cover.
    """
    if vllm_config.model_config is None:
        original(vllm_config)
        return
    refuse_unsupported(vllm_config)
    vllm_config.parallel_config.worker_cls = WORKER
    original(vllm_config)
    vllm_config.scheduler_config.scheduler_cls = SCHEDULER
    config.adjust(vllm_config)


def refuse_unsupported(vllm_config: Any) -> None:
    """Stop the start with one clear message where a simulation would be wrong."""
    stages = vllm_config.parallel_config.pipeline_parallel_size
    config.refuse(
        vllm_config,
        {
            f"--pipeline-parallel-size {stages} is not supported by sendnn-inference": stages > 1,
            "speculative decoding is not simulated": vllm_config.speculative_config is not None,
            "LoRA is not supported by sendnn-inference": vllm_config.lora_config is not None,
        },
    )
