"""Deployments that one engine on one clock cannot stand for are refused when the server starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sendnn_bench.errors import UsageError
from server_plugin.engine.config import refuse


def deployment(**changed: Any) -> SimpleNamespace:
    """vLLM's configuration, as far as the refusals read it."""
    values = {"replicas": 1, "servers": 1, "runner": "generate", "multimodal": False} | changed
    return SimpleNamespace(
        model_config=SimpleNamespace(
            model="m", runner_type=values["runner"], is_multimodal_model=values["multimodal"]
        ),
        parallel_config=SimpleNamespace(
            data_parallel_size=values["replicas"], _api_process_count=values["servers"]
        ),
    )


def test_one_engine_behind_one_server_is_simulated() -> None:
    refuse(deployment(), {})


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"replicas": 2}, "--data-parallel-size 2: one engine, one clock; start one server per"),
        ({"servers": 4}, "--api-server-count 4: the simulation session lives in one API server"),
        ({"runner": "pooling"}, "m is a pooling model"),
        ({"multimodal": True}, "m is multimodal"),
    ],
)
def test_others_are_refused_with_the_reason(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        refuse(deployment(**changed), {})


def test_a_target_adds_its_own_reasons() -> None:
    with pytest.raises(UsageError, match="cannot simulate this deployment: too large"):
        refuse(deployment(), {"too large": True, "too small": False})
