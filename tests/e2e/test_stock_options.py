"""vLLM's scheduler with chunked prefill and prefix caching switched off."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Server, start_server
from tests.e2e.wire import MS, Ask, run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Prompts go whole, into steps of at most 2,048 tokens; async scheduling is asked for."""
    server = start_server(
        tmp_path_factory.mktemp("stock-options") / "server.log",
        *("--target", "stock"),
        *("--max-model-len", "2048"),
        *("--max-num-batched-tokens", "2048"),
        *("--max-num-seqs", "8"),
        "--no-enable-chunked-prefill",
        "--no-enable-prefix-caching",
        "--async-scheduling",
    )
    yield server
    server.stop()


def test_whole_prompts_wait_until_they_fit(plain_server: Server) -> None:
    """A: 1,100 tokens from 0 ms. B: 600 and C: 1,800 from 30 ms. A and B are the same text.

    [0, 100) A's prompt; [100, 200) A decodes beside B's whole prompt: nothing is cached, and C's
    1,800 do not fit beside 601 tokens; [200, 300) A and B decode beside C's whole prompt;
    [300, 350) all decode, B is done; [350, 400) A and C decode and are done.
    """
    a, b, c = run(
        plain_server.url,
        [
            Ask(0, 1100, 5, token=1001),
            Ask(30 * MS, 600, 3, token=1001),
            Ask(30 * MS, 1800, 3, token=1002),
        ],
    )
    assert a.record["token_times_ns"] == [t * MS for t in (100, 200, 300, 350, 400)]
    assert b.record["token_times_ns"] == [t * MS for t in (200, 300, 350)]
    assert c.record["token_times_ns"] == [t * MS for t in (300, 350, 400)]
    assert [reply.record["chunk_tokens"] for reply in (a, b, c)] == [[1100], [600], [1800]]
    assert b.record["chunk_context_tokens"] == [0]
