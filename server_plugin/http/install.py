"""Hooks of the API server process: request checks, and the record in the last SSE chunk."""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion

from sendnn_bench.protocol import METRICS_KEY
from server_plugin import settings as sim_settings
from server_plugin.http import checks, virtual_stats
from server_plugin.sim.recorder import TRANSFER_KEY

UPSTREAM_TRANSFER_KEY = "__spyre__"
UPSTREAM_METRICS_KEY = METRICS_KEY + "_upstream"
MARK = "_sendnn_sim_installed"


def install_http() -> None:
    """Does nothing the second time."""
    if getattr(OpenAIServingChat, MARK, False):
        return
    setattr(OpenAIServingChat, MARK, True)
    settings = sim_settings.load(os.environ)
    parity = settings.parity
    if settings.clock != "paced":
        virtual_stats.install()
    _wrap_entry(OpenAIServingChat, "create_chat_completion", parity)
    _wrap_entry(OpenAIServingCompletion, "create_completion", parity)
    _wrap_stream(OpenAIServingChat, "chat_completion_stream_generator", 1, parity)
    _wrap_stream(OpenAIServingCompletion, "completion_stream_generator", 2, parity)


def _wrap_entry(owner: type, name: str, parity: bool) -> None:
    """Answer a request that cannot be simulated with 400; put the record where it belongs in an
    answer that is not streamed."""
    original: Callable[..., Awaitable[Any]] = getattr(owner, name)

    @functools.wraps(original)
    async def entry(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        wrong = checks.problem(request)
        if wrong is not None:
            return self.create_error_response(wrong)
        answer = await original(self, request, *args, **kwargs)
        if getattr(answer, "kv_transfer_params", None):
            extra: dict[str, Any] = {}
            answer.kv_transfer_params = take_record(answer.kv_transfer_params, extra, parity)
            for key, value in extra.items():
                setattr(answer, key, value)
        return answer

    setattr(owner, name, entry)


def _wrap_stream(owner: type, name: str, position: int, parity: bool) -> None:
    """Wrap a stream generator whose ``position``-th argument after `self` yields the outputs."""
    original: Callable[..., AsyncGenerator[str, None]] = getattr(owner, name)

    @functools.wraps(original)
    async def generator(self: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[str, None]:
        extra: dict[str, Any] = {}
        watched = list(args)
        watched[position] = _watch(args[position], extra, parity)
        async for chunk in original(self, *watched, **kwargs):
            yield splice(chunk, extra) if extra and is_usage_chunk(chunk) else chunk

    setattr(owner, name, generator)


async def _watch(
    results: AsyncIterator[Any], extra: dict[str, Any], parity: bool
) -> AsyncIterator[Any]:
    """Pass results on; take our record out of the last one."""
    async for item in results:
        result = item[1] if isinstance(item, tuple) else item
        if result.finished and result.kv_transfer_params:
            result.kv_transfer_params = take_record(result.kv_transfer_params, extra, parity)
        yield item


def take_record(
    transfer: dict[str, Any], extra: dict[str, Any], parity: bool
) -> dict[str, Any] | None:
    """Move our record from `kv_transfer_params` to ``extra``; what is left of them, if anything."""
    left = dict(transfer)
    record, upstream = left.pop(TRANSFER_KEY, None), left.pop(UPSTREAM_TRANSFER_KEY, None)
    if record is not None:
        extra[METRICS_KEY] = record
    if parity and upstream is not None:
        extra[UPSTREAM_METRICS_KEY] = upstream
    return left or None


def is_usage_chunk(chunk: Any) -> bool:
    """True for the last chunk with `stream_options.include_usage`: usage, and no choices."""
    return isinstance(chunk, str) and '"usage":{' in chunk and '"choices":[]' in chunk


def splice(chunk: str, extra: dict[str, Any]) -> str:
    """Add keys to the JSON object of an SSE chunk without parsing it again."""
    body = msgspec.json.encode(extra).decode()
    return f"{chunk.rstrip().removesuffix('}')},{body[1:]}\n\n"
