"""Speculative decoding as a model: acceptance rate and draft cost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Server, start_server
from tests.e2e.wire import MS, Ask, run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def speculating_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Three drafts a step, all accepted; drafting takes 5 ms."""
    server = start_server(
        tmp_path_factory.mktemp("stock-speculation") / "server.log",
        *("--target", "stock"),
        *("--max-model-len", "2048"),
        *("--max-num-seqs", "8"),
        *("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}'),
        env={
            "SENDNN_INFERENCE_SIM_ACCEPTANCE_RATE": "1",
            "SENDNN_INFERENCE_SIM_DRAFT_MS": "5",
        },
    )
    yield server
    server.stop()


def test_each_step_gives_the_drafts_and_one_more(speculating_server: Server) -> None:
    """[0, 100) the prompt and its token; [100, 155) four tokens; [155, 210) four; the last step
    is cut short by the tenth token."""
    (reply,) = run(speculating_server.url, [Ask(0, 100, 10)])
    record = reply.record
    times = [100, *[155] * 4, *[210] * 4, 265]
    assert record["token_times_ns"] == [t * MS for t in times]
    assert record["num_chunked_prefills"] == 1
    assert record["decode_latencies_s"] == [0.055] * 3
    assert reply.usage["completion_tokens"] == 10


def test_an_injected_end_cuts_the_drafts(speculating_server: Server) -> None:
    (reply,) = run(speculating_server.url, [Ask(0, 100, 50, inject=7, ignore_eos=False)])
    assert (reply.finish_reason, reply.usage["completion_tokens"]) == ("stop", 7)
    assert reply.record["token_times_ns"] == [t * MS for t in (100, *[155] * 4, *[210] * 2)]
