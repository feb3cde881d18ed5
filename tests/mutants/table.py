"""Which modules are changed, and the tests that should notice."""

from __future__ import annotations

from typing import NamedTuple


class Group(NamedTuple):
    modules: list[str]
    """Files, and folders with all of their modules."""
    share: int
    """How many of each `TOTAL` mutants are drawn here."""
    near: list[str]
    """The tests of these modules."""
    far: list[str]
    """Tests that use these modules; they run if the near ones notice nothing."""


CLIENTS = ["tests/test_client.py", "tests/test_concurrency.py", "tests/test_drop_in.py"]
ENGINE = [
    "tests/engine/test_oracle.py",
    "tests/engine/test_keeping.py",
    "tests/engine/test_failures.py",
    "tests/test_client.py",
]

TABLE = {
    "work": Group(["localai_shim/engine/work"], 3, ["tests/engine/work"], ENGINE),
    "kv": Group(["localai_shim/engine/kv"], 3, ["tests/engine/kv"], ["tests/engine/prefix", *ENGINE]),
    "decode": Group(["localai_shim/engine/decode"], 3, ["tests/engine/decode"], ["tests/engine/drafts", *ENGINE]),
    "sampling": Group(
        ["localai_shim/engine/sampling"],
        3,
        ["tests/engine/sampling"],
        ["tests/engine/test_constraints.py", *ENGINE],
    ),
    "prefix": Group(
        ["localai_shim/engine/prefix"],
        3,
        ["tests/engine/prefix"],
        ["tests/test_prefix_cache.py", *ENGINE],
    ),
    "loop": Group(
        ["localai_shim/engine/loop.py", "localai_shim/engine/inbox.py", "localai_shim/engine/sinks.py"],
        3,
        [
            "tests/engine/test_sinks.py",
            "tests/engine/test_deliveries.py",
            "tests/engine/test_threads.py",
            "tests/engine/test_failures.py",
            "tests/engine/test_stats.py",
        ],
        ["tests/engine/prefix/test_store.py", "tests/test_changes_at_once.py", "tests/engine/work", *ENGINE, *CLIENTS],
    ),
    "output": Group(
        ["localai_shim/output/channels.py", "localai_shim/output/answer.py", "localai_shim/formats/reading.py"],
        3,
        ["tests/output", "tests/formats"],
        ["tests/endpoints/chat", "tests/endpoints/answer"],
    ),
    "grammar": Group(
        ["localai_shim/grammar/relax.py", "localai_shim/grammar/constraint.py", "localai_shim/formats/grammar"],
        3,
        ["tests/grammar", "tests/formats/grammar"],
        ["tests/endpoints/answer", "tests/engine/test_constraints.py"],
    ),
    "endpoints": Group(
        [
            "localai_shim/endpoints/request_fields.py",
            "localai_shim/endpoints/chat",
            "localai_shim/endpoints/hosted",
            "localai_shim/endpoints/responses",
        ],
        3,
        [
            "tests/endpoints/chat",
            "tests/endpoints/hosted",
            "tests/endpoints/responses",
            "tests/endpoints/test_fields.py",
            "tests/endpoints/test_text.py",
            "tests/endpoints/test_vllm_fields.py",
        ],
        ["tests/endpoints", *CLIENTS],
    ),
    "turns": Group(
        ["localai_shim/endpoints/turn.py", "localai_shim/client/call.py"],
        2,
        ["tests/endpoints/turns"],
        [
            "tests/endpoints/test_embeddings.py",
            "tests/test_preparing_media.py",
            "tests/endpoints/chat",
            "tests/endpoints/responses",
            "tests/test_content.py",
            *CLIENTS,
        ],
    ),
    "client": Group(
        ["localai_shim/client/local.py", "localai_shim/client/streams.py"],
        2,
        ["tests/test_client.py", "tests/test_drop_in.py", "tests/test_lifecycle.py", "tests/test_sharing_streams.py"],
        ["tests/test_process.py", "tests/test_transport.py", "tests/test_concurrency.py", "tests/test_options.py"],
    ),
    "prompt": Group(
        ["localai_shim/prompt/items.py", "localai_shim/prompt/messages.py", "localai_shim/prompt/template.py"],
        3,
        ["tests/prompt"],
        ["tests/endpoints/chat", "tests/endpoints/items"],
    ),
    "state": Group(
        ["localai_shim/state/store.py"], 2, ["tests/state"], ["tests/endpoints/items", "tests/endpoints/chat"]
    ),
    "testing": Group(["localai_shim/testing"], 2, ["tests/testing"], ["tests/test_client.py"]),
}
