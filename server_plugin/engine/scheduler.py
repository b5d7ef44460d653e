"""Puts a scheduler on the virtual clock: what both targets share, as a mixin before vLLM's class.

The scheduler itself runs unmodified; this only looks at what it decided and what came back.
"""

from __future__ import annotations

import os
from typing import Any

import vllm.v1.core.sched.scheduler as vllm_scheduler
import vllm.v1.engine as vllm_engine

from sendnn_bench import profile
from server_plugin import settings as sim_settings
from server_plugin.sim.costs import ConstantCost, CostModel, build
from server_plugin.sim.engine_sim import EngineSim, OpenStep
from server_plugin.sim.host_times import now_ns
from server_plugin.sim.module_time import ModuleTime, to_module_s
from server_plugin.sim.recorder import TRANSFER_KEY, PartInStep

STEP_ATTRIBUTE = "_sendnn_sim_step"
HOST_ATTRIBUTE = "_sendnn_sim_host_ns"
"""Attribute of a model runner's output: real ns of the runner's phases in this step."""


def cost_model(settings: sim_settings.SimSettings) -> CostModel:
    """The cost model that the settings name.

    Raises:
        BenchError: the profile cannot be read or is not valid.
    """
    if settings.profile is not None:
        return build(profile.load(settings.profile))
    return ConstantCost(
        prefill_ns=round(settings.prefill_ms * 1e6), decode_ns=round(settings.decode_ms * 1e6)
    )


class SimSchedulerMixin:
    """Charges each step between `schedule` and `update_from_output` and records it."""

    scheduler_config: Any
    cache_config: Any
    kv_cache_manager: Any
    requests: dict[str, Any]
    running: list[Any]
    waiting: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = sim_settings.load(os.environ)
        self.sim: EngineSim[Any] = EngineSim(
            settings,
            cost_model(settings),
            block_size_tokens=self.sim_block_size(),
            chunk_size_tokens=self.scheduler_config.max_num_batched_tokens,
        )
        self._sim_scheduled_ns = 0
        self.sim_phase = "start"
        self.sim_step: OpenStep | None = None
        self.sim_last_tkv = 0
        if settings.clock != "paced":
            # vLLM's own statistics then tell virtual time; a paced server's are real.
            vllm_engine.time = vllm_scheduler.time = self.sim_time()

    def sim_time(self) -> ModuleTime:
        """This engine's clock as a stand-in for the module `time`."""
        clock = self.sim.clock
        return ModuleTime(lambda: to_module_s(clock.now_ns))

    # What a target may answer in its own way

    def sim_block_size(self) -> int:
        """Tokens of a KV block."""
        return int(self.cache_config.block_size)

    def sim_tkv(self, step: OpenStep, output: Any) -> int:
        """Padded length of the batch: here the longest request of the step, in tokens."""
        return max(part.context_tokens + part.tokens for part in step.parts)

    def sim_queues(self) -> dict[str, list[Any]]:
        """Requests by what the scheduler does with them, for the report of a failure."""
        return {"running": list(self.running), "waiting": list(self.waiting)}

    def sim_cold_start(self) -> None:
        """Forget what an earlier session left behind in the scheduler."""
        if not self.reset_prefix_cache():  # type: ignore[attr-defined]
            raise RuntimeError("the prefix cache could not be reset: KV blocks are still in use")

    # What vLLM calls

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        host = self.sim.host_times
        began_ns = now_ns()
        self.sim_phase, self.sim_step = "schedule", None
        output = super().schedule(*args, **kwargs)  # type: ignore[misc]
        self.sim_phase = "execute"
        if output.total_num_scheduled_tokens:
            host.step_begins(began_ns)
            self._sim_scheduled_ns = now_ns()
            host.add("schedule", self._sim_scheduled_ns - began_ns)
            step = self.sim.begin_step(self._sim_parts(output), self._sim_blocks_in_use())
            setattr(output, STEP_ATTRIBUTE, step)
            self.sim_step = step
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        step: OpenStep | None = getattr(scheduler_output, STEP_ATTRIBUTE, None)
        self.sim_phase = "update"
        if step is None:
            return super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]
        host = self.sim.host_times
        whole = {"prepare": now_ns() - self._sim_scheduled_ns}
        for phase, ns in getattr(model_runner_output, HOST_ATTRIBUTE, whole).items():
            host.add(phase, ns)
        tkv = self.sim_last_tkv = self.sim_tkv(step, model_runner_output)
        self.sim.end_step(step, tkv, _new_tokens(model_runner_output))
        with host.phase("update"):
            result = super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]
        host.step_ended()
        return result

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        transfer, *rest = super()._free_request(request, *args, **kwargs)  # type: ignore[misc]
        reason = request.get_finished_reason()
        record = self.sim.finish(request.request_id, "" if reason is None else str(reason))
        if record is not None:
            transfer = {**(transfer or {}), TRANSFER_KEY: record}
        return transfer, *rest

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        super()._preempt_request(request, *args, **kwargs)  # type: ignore[misc]
        record = self.sim.recorder.records.get(request.request_id)
        if record is not None:
            record.preemptions += 1

    def _sim_parts(self, output: Any) -> list[PartInStep]:
        drafts = output.scheduled_spec_decode_tokens
        return [
            self._sim_part(self.requests[request_id], tokens, len(drafts.get(request_id, ())))
            for request_id, tokens in output.num_scheduled_tokens.items()
        ]

    @staticmethod
    def _sim_part(request: Any, tokens: int, drafts: int = 0) -> PartInStep:
        # `schedule` has already counted this step's tokens, drafts included, as computed.
        after = request.num_computed_tokens
        decode = (
            request.num_output_tokens > 0
            and tokens == 1 + drafts
            and after == request.num_tokens + drafts
        )
        return PartInStep(
            request_id=request.request_id,
            tokens=tokens,
            context_tokens=after - tokens,
            decode=decode,
        )

    def _sim_blocks_in_use(self) -> int:
        pool = self.kv_cache_manager.block_pool
        # vLLM keeps one block as the null block, never free and never in use.
        return int(pool.num_gpu_blocks - 1 - pool.get_num_free_blocks())


def _new_tokens(output: Any) -> dict[str, int]:
    """Output tokens of each request in a step. A step that samples nothing has empty lists."""
    sampled = output.sampled_token_ids
    if not sampled:
        return {}
    return {request_id: len(sampled[index]) for request_id, index in output.req_id_to_index.items()}
