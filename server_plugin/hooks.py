"""Every name of vLLM and sendnn-inference that the plugin replaces or relies on: one row each.

Checked when the server starts, so that an unsupported version says so with the symbol's name
instead of failing in mid-run.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
from dataclasses import dataclass
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from sendnn_bench.errors import UsageError

SUPPORTED = {"vllm": SpecifierSet(">=0.28,<0.34"), "sendnn-inference": SpecifierSet(">=2.6,<2.7")}
"""The tests ran with vLLM 0.28.0 (both targets, sendnn-inference 2.6.3) and 0.33.0 (stock). In
between the hooks below decide."""


@dataclass(frozen=True)
class Hook:
    """``module:attribute.path``, and why the plugin needs it.

    ``later`` is where newer versions keep it.
    """

    place: str
    why: str
    later: str = ""


AUTHENTICATION = Hook(
    "vllm.entrypoints.serve.utils.server_utils:AuthenticationMiddleware",
    "called: the /sim routes ask for the server's API key",
    later="vllm.entrypoints.serve.middleware.authenticate:AuthenticationMiddleware",
)

COMMON = (
    AUTHENTICATION,
    Hook("vllm.v1.engine.core:EngineCoreProc.has_work", "replaced: closed gate means no work"),
    Hook(
        "vllm.v1.engine.core:EngineCoreProc._handle_client_request",
        "replaced: a message may open the gate",
    ),
    Hook(
        "vllm.v1.engine.core:EngineCoreProc._process_engine_step",
        "replaced: after a step the gate decides",
    ),
    Hook("vllm.v1.engine.core:EngineCore.add_request", "replaced: staging by virtual arrival"),
    Hook("vllm.v1.engine.core:EngineCore.abort_requests", "replaced: aborts of staged requests"),
    Hook("vllm.v1.engine.core:EngineCoreProc._send_abort_outputs", "called: session ends"),
    Hook(
        "vllm.v1.engine.core:EngineCoreProc._send_abort_outputs_to_client",
        "called: request of a session that is gone",
    ),
    Hook(
        "vllm.v1.core.sched.scheduler:Scheduler._free_request",
        "extended: the record travels with the last output",
    ),
    Hook(
        "vllm.v1.core.sched.scheduler:Scheduler._preempt_request",
        "extended: preemptions are counted",
    ),
    Hook("vllm.v1.core.sched.scheduler:Scheduler.reset_prefix_cache", "called: cold start"),
    Hook(
        "vllm.entrypoints.openai.chat_completion.serving:OpenAIServingChat.create_chat_completion",
        "replaced: checks the request's simulation fields",
    ),
    Hook(
        "vllm.entrypoints.openai.completion.serving:OpenAIServingCompletion.create_completion",
        "replaced: checks the request's simulation fields",
    ),
    Hook("vllm.v1.engine:time", "replaced: events and outputs stamped with virtual time"),
    Hook("vllm.v1.core.sched.scheduler:time", "replaced: scheduled timestamps in virtual time"),
    Hook("vllm.v1.metrics.loggers:time", "replaced: throughput log line in virtual time"),
    Hook(
        "vllm.v1.engine.input_processor:InputProcessor.process_inputs",
        "replaced: arrival in virtual time",
    ),
    Hook(
        "vllm.v1.engine.output_processor:OutputProcessor.process_outputs",
        "replaced: iteration timestamp in virtual time",
    ),
    Hook(
        "vllm.v1.engine.core_client:AsyncMPClient.call_utility_async",
        "called: control calls of the /sim routes",
    ),
    Hook(
        "vllm.entrypoints.openai.chat_completion.serving:"
        "OpenAIServingChat.chat_completion_stream_generator",
        "replaced: record into the usage chunk",
    ),
    Hook(
        "vllm.entrypoints.openai.completion.serving:"
        "OpenAIServingCompletion.completion_stream_generator",
        "replaced: record into the usage chunk",
    ),
)

SPYRE = (
    Hook(
        "sendnn_inference.platform:SpyrePlatform.check_and_update_config",
        "replaced: our worker, scheduler and executor",
    ),
    Hook("sendnn_inference.v1.worker.spyre_worker:SpyreWorker.init_device", "overridden"),
    Hook("sendnn_inference.v1.worker.spyre_worker:SpyreWorker.load_model", "overridden"),
    Hook(
        "sendnn_inference.v1.worker.spyre_worker:SpyreWorker.compile_or_warm_up_model",
        "overridden: no warm-up",
    ),
    Hook(
        "sendnn_inference.v1.core.scheduler:ChunkedPrefillSpyreScheduler._get_required_blocks",
        "extended: requests held back by missing KV blocks",
    ),
    Hook(
        "sendnn_inference.v1.core.scheduler:ChunkedPrefillSpyreScheduler.can_schedule_prefill",
        "extended: requests held back by missing KV blocks",
    ),
    Hook(
        "sendnn_inference.v1.core.scheduler:time",
        "replaced: upstream measures virtual time",
    ),
    Hook(
        "vllm.v1.sample.sampler:Sampler.greedy_sample",
        "overridden: the largest logit is found by numpy, with the same answer",
    ),
    Hook(
        "sendnn_inference.v1.worker.spyre_model_runner:ChunkedPrefillModelRunner.complete_warmup",
        "called: ends warm-up mode",
    ),
)

STOCK = (
    Hook(
        "vllm.platforms.interface:Platform.check_and_update_config",
        "overridden: our worker, scheduler and executor",
    ),
    Hook("vllm.platforms.interface:Platform.validate_request", "overridden: refusals with 400"),
    Hook("vllm.platforms.interface:Platform.get_attn_backend_cls", "overridden: describes only"),
    Hook("vllm.v1.worker.worker_base:WorkerBase.execute_model", "overridden: no model runs"),
    Hook("vllm.v1.worker.worker_base:WorkerBase.sample_tokens", "overridden: tokens, no logits"),
    Hook("vllm.v1.worker.worker_base:WorkerBase.get_kv_cache_spec", "overridden: from meta device"),
    Hook(
        "vllm.model_executor.layers.attention.mla_attention:get_mla_prefill_backend",
        "replaced while a model is laid out: no kernel",
    ),
    Hook(
        "vllm.model_executor.model_loader.utils:initialize_model",
        "called: the model class on the meta device",
    ),
    Hook(
        "vllm.model_executor.layers.attention_layer_base:AttentionLayerBase.get_kv_cache_spec",
        "called: each layer's KV cache",
    ),
    *(
        Hook(
            f"vllm.distributed.parallel_state:{name}",
            "replaced while a model is laid out: a group without processes",
        )
        for name in ("_WORLD", "_TP", "_PP", "_DP", "_EP", "_DCP", "_PCP")
    ),
    Hook("vllm.exceptions:VLLMValidationError", "raised: a request that is not simulated"),
    Hook("vllm.v1.outputs:LogprobsLists", "made: plausible log-probabilities"),
)


def resolve(place: str) -> object:
    """The object behind ``module:attribute.path``.

    Raises:
        ImportError, AttributeError: it is not there.
    """
    module, _, path = place.partition(":")
    found: object = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def find(hook: Hook) -> Any:
    """The object of a row, wherever the installed version keeps it.

    Raises:
        ImportError, AttributeError: it is in neither place; the error is of the first.
    """
    try:
        return resolve(hook.place)
    except (ImportError, AttributeError):
        if hook.later:
            with contextlib.suppress(ImportError, AttributeError):
                return resolve(hook.later)
        raise


def check_versions() -> None:
    """Compare what is installed with `SUPPORTED`.

    Raises:
        UsageError: a version is outside.
    """
    for name, version in versions().items():
        wanted = SUPPORTED.get(name)
        if wanted is not None and not wanted.contains(Version(version), prereleases=True):
            raise UsageError(
                f"{name} {version} is not supported by the simulator; it takes {name}{wanted}. "
                "Install a supported version."
            )


def check(hooks: tuple[Hook, ...]) -> None:
    """Resolve every row.

    Raises:
        UsageError: a symbol is missing, with the versions installed and supported.
    """
    for hook in hooks:
        try:
            find(hook)
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"the simulator needs {hook.place} ({hook.why}), which this installation does not "
                f"have: {error}. Installed: {versions()}; supported: {supported()}."
            ) from error


def supported() -> str:
    """Supported versions, for messages."""
    return ", ".join(f"{name}{wanted}" for name, wanted in SUPPORTED.items())


def versions() -> dict[str, str]:
    """Installed versions of what the plugin touches."""
    found = {}
    for name in ("sendnn-bench", "vllm", "sendnn-inference", "torch"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
