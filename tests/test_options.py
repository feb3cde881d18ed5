"""What the clients' constructor options and `priority` do, and how they are refused."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.work import prefill, queue
from localai_shim.media import Contents, MediaRules
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions
from localai_shim.testing import ScriptedEngine
from localai_shim.types import GenerationRequest
from tests import inside
from tests.conftest import MESSAGES, refused
from tests.engine.harness import Running, engine_for, eventually, held, request
from tests.samples import only
from tests.scripts import run
from tests.tiny import tiny
from tests.vision import tiny_vision

ENDLESS = {"ignore_eos": True}
NAN = float("nan")
ASK: dict[str, Any] = {"model": "any", "messages": MESSAGES, "max_tokens": 3, "temperature": 0}
LONG: list[Any] = [{"role": "user", "content": "The quick brown fox jumps over the lazy dog. " * 8}]


def cached(answer: Any) -> int:
    return answer.usage.prompt_tokens_details.cached_tokens or 0


# -- what is refused at once -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [LocalOpenAI, AsyncLocalOpenAI])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_queue": -1}, "`max_queue` must be >= 0, got -1"),
        ({"prefix_cache_bytes": -1}, "`prefix_cache_bytes` must be >= 0"),
        ({"memory_limit": 0}, "`memory_limit` must be > 0, got 0"),
        ({"memory_limit": -(2**30)}, "`memory_limit` must be > 0"),
        ({"kv_bits": 3}, "`kv_bits` must be one of 4, 8, not 3"),
        ({"kv_bits": 0}, "`kv_bits` must be > 0"),
        ({"kv_bits": 8, "kv_group_size": 16}, "`kv_group_size` must be one of 32, 64, 128, not 16"),
        ({"tool_format": "nothing"}, "`tool_format` must be one of 'apertus', .*'hermes', .*'none', not 'nothing'"),
        ({"reasoning_format": "nothing"}, "`reasoning_format` must be one of .*'think', .*'none', not 'nothing'"),
        ({"tool_format": 3}, "`tool_format` must be a string, or one for each model, not 3"),
        ({"tool_format": {"a": "hermes"}}, "`tool_format` names a model that there is none of, 'a'; there is none"),
        ({"speculation": "fast"}, "`speculation` must be one of 'auto', 'off', not 'fast'"),
        ({"draft_model": "some/id", "speculation": "off"}, "`draft_model` has no effect with `speculation='off'`"),
        ({"draft_tokens": 3, "speculation": "off"}, "`draft_tokens` has no effect with `speculation='off'`"),
        ({"draft_model": "some/id", "draft_tokens": 16}, "`draft_tokens` must be at most 15, not 16"),
        ({"draft_model": "some/id", "draft_tokens": 0}, "`draft_tokens` must be > 0, got 0"),
        ({"kv_group_size": 64}, "`kv_group_size` has no effect without `kv_bits`: pass"),
        ({"max_stall": NAN}, "`max_stall` must be a number, not nan"),
        ({"keep_alive": NAN}, "`keep_alive` must be a number, not nan"),
        ({"keep_alive": "5m"}, "`keep_alive` must be a number, not '5m'"),
        ({"memory_limit": NAN}, "`memory_limit` must be an integer, not nan"),
        ({"memory_limit": "8GB"}, "`memory_limit` must be an integer, not '8GB'"),
        ({"max_rows": 2.5}, "`max_rows` must be an integer, not 2.5"),
        ({"max_rows": True}, "`max_rows` must be an integer, not True"),
        ({"switch_interval": 0}, "`switch_interval` must be > 0, got 0"),
        ({"switch_interval": NAN}, "`switch_interval` must be a number, not nan"),
        ({"switch_interval": float("inf")}, "`switch_interval` must be at most 1, not inf"),
    ],
)
def test_options_that_are_out_of_range_are_refused(make: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(tiny("qwen3"), **options)


def test_formats_of_models_that_there_are_none_of_are_refused() -> None:
    with pytest.raises(
        ValueError, match="`reasoning_format` names a model that there is none of, 'c'; there is 'a', 'b'"
    ):
        LocalOpenAI(models={"a": tiny("qwen3"), "b": tiny("qwen3")}, reasoning_format={"a": "think", "c": "none"})


@pytest.mark.parametrize("make", [LocalOpenAI, AsyncLocalOpenAI])
def test_options_beside_an_engine_that_runs_already_are_refused(make: Any) -> None:
    engine = ScriptedEngine(["yes"])
    with pytest.raises(ValueError, match="`max_rows` would have no effect"):
        make(engine=engine, max_rows=3)
    engine.close()


@pytest.mark.parametrize(
    "options",
    [
        {"max_queue": 7},
        {"memory_limit": 2**33},
        {"kv_bits": 8},
        {"prefix_cache_bytes": 0},
        {"cache_dir": "somewhere"},
        {"text_only": True},
        {"vision_cache_bytes": 2**20},
    ],
    ids=lambda options: next(iter(options)),
)
def test_clients_with_other_options_have_other_engines(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tiny("qwen3", head_dim=64)
    with (
        LocalOpenAI(path, keep_alive=0) as plain,
        LocalOpenAI(path, keep_alive=0, **options) as other,
        LocalOpenAI(path, keep_alive=0, **options) as same,
    ):
        assert inside.engine(same) is inside.engine(other)
        assert inside.engine(plain) is not inside.engine(other)


def test_where_media_may_come_from_is_the_clients_own_affair(tmp_path: Path) -> None:
    path = tiny_vision("qwen2_vl")
    with (
        LocalOpenAI(path, keep_alive=0) as plain,
        LocalOpenAI(path, keep_alive=0, allow_remote_images=True, allow_local_files=tmp_path) as other,
    ):
        assert inside.engine(plain) is inside.engine(other)
        copy = other.with_options(timeout=5)
        rules = [
            inside.runtime(client).served(inside.engine(client), Contents()).media_rules
            for client in (plain, other, copy)
        ]
        assert rules == [MediaRules(), *[MediaRules(True, str(tmp_path.resolve()))] * 2]


@pytest.mark.parametrize("make", [LocalOpenAI, AsyncLocalOpenAI])
def test_threads_take_turns_as_a_client_says_and_no_other_client_changes_that(make: Any) -> None:
    """It is of the whole process: a client that does not say anything leaves it as it is."""
    before = sys.getswitchinterval()
    try:
        for given, expected in (({}, before), ({"switch_interval": 0.0005}, 0.0005), ({}, 0.0005)):
            make(engine=ScriptedEngine(), **given)
            assert sys.getswitchinterval() == pytest.approx(expected)
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("folder", ["nowhere", "file"])
def test_a_folder_of_files_that_is_none_is_refused(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError, match="`allow_local_files`: there is no folder"):
        LocalOpenAI(engine=ScriptedEngine(), allow_local_files=tmp_path / folder)


# -- what they do ------------------------------------------------------------------------------------------------------


def test_max_queue_lets_so_many_wait() -> None:
    with LocalOpenAI(tiny("qwen3"), max_rows=1, max_queue=0, keep_alive=0) as client:
        endless: Any = {**ASK, "max_tokens": 900, "extra_body": {"ignore_eos": True}}
        with client.chat.completions.create(**endless, stream=True) as stream:
            next(stream)
            with pytest.raises(openai.RateLimitError):
                client.chat.completions.create(**ASK)
        assert eventually(lambda: client.stats().running + client.stats().waiting == 0)
        assert client.chat.completions.create(**ASK).usage is not None


def test_memory_limit_says_how_long_a_context_may_be() -> None:
    engine = engine_for("qwen3")
    weights, per_token = engine.model.weight_bytes, engine.stats().kv_bytes_per_token
    engine.close()
    with LocalOpenAI(tiny("qwen3"), memory_limit=weights + 400 * per_token, keep_alive=0) as client:
        whole = client.completions.create(model="any", prompt=[5] * 200, max_tokens=56, extra_body=ENDLESS)
        assert whole.usage is not None and whole.usage.total_tokens == 256
        for length in (256, 300, 900):  # the model's own context is 1,024
            with refused("prompt", "context_length_exceeded", "maximum context length is 256 tokens"):
                client.completions.create(model="any", prompt=[5] * length)
        with refused("max_tokens", "invalid_value", "at most 256 tokens"):
            client.completions.create(model="any", prompt=[5], max_tokens=257)
        cut = client.completions.create(model="any", prompt=[5] * 250, extra_body=ENDLESS)
        assert cut.usage is not None and cut.usage.total_tokens == 256
        assert cut.choices[0].finish_reason == "length"


@pytest.mark.parametrize("kind", only(["gemma3_text"], ["gemma3_text", "qwen3_next"]))
def test_a_memory_limit_that_leaves_no_row_is_said_when_the_model_is_loaded(kind: str) -> None:
    """Windows and recurrent states take their memory with the first token."""
    weights = load_model(str(tiny(kind)), LoadOptions()).weight_bytes
    least = 0
    with LocalOpenAI(tiny(kind), memory_limit=weights + 1000, keep_alive=0) as client:
        with pytest.raises(openai.InternalServerError, match="the shortest row needs") as caught:
            client.chat.completions.create(**ASK)
        least = int(re.findall(r"needs (\d+)", caught.value.message)[0])
    with LocalOpenAI(tiny(kind), memory_limit=least, keep_alive=0) as client:
        whole = client.completions.create(model="any", prompt=[5, 6, 7], max_tokens=250, extra_body=ENDLESS)
        assert whole.usage is not None and whole.usage.completion_tokens == 250, "and so many bytes are enough"


@pytest.mark.parametrize("limit", [2**22, None], ids=["limited", "unlimited"])
def test_budgets_do_not_depend_on_the_order_of_loading(limit: int | None) -> None:
    kinds = ("qwen3", "gemma3_text")
    budgets: list[dict[str, int | None]] = []
    for order in (kinds, kinds[::-1]):
        clients = {kind: LocalOpenAI(tiny(kind), memory_limit=limit, keep_alive=0, max_rows=3) for kind in order}
        for kind in order:
            clients[kind].chat.completions.create(**ASK)
        budgets.append({kind: clients[kind].stats().kv_budget for kind in kinds})
        for client in clients.values():
            client.close()
    assert budgets[0] == budgets[1] and None not in budgets[0].values()


def test_models_without_a_limit_share_what_there_is_as_they_come_and_go() -> None:
    """In a process of its own: engines of other tests would have their share."""
    done = run(
        """
        from localai_shim import LocalOpenAI
        ask = dict(model="any", messages=[{"role": "user", "content": "Go on"}], max_tokens=2)
        first = LocalOpenAI(MODEL, keep_alive=0, max_rows=3)
        first.chat.completions.create(**ask)
        alone = first.stats().kv_budget
        with LocalOpenAI(MODEL, keep_alive=0, max_rows=4) as second:
            second.chat.completions.create(**ask)
            assert first.stats().kv_budget == second.stats().kv_budget <= 0.5 * alone
        assert first.stats().kv_budget == alone
        """,
        warm="mlx",
    )
    assert done.returncode == 0, done.stderr


def test_a_memory_limit_below_the_weights_is_said_by_each_request() -> None:
    with LocalOpenAI(tiny("qwen3"), memory_limit=1000, keep_alive=0) as client:
        for _ in range(2):
            with pytest.raises(openai.InternalServerError, match="memory_limit is 1000 bytes"):
                client.chat.completions.create(**ASK)
        assert client.stats().kv_budget is None


@pytest.mark.parametrize(("bits", "group", "head"), [(4, None, 64), (8, None, 64), (8, 32, 32), (4, 32, 64)])
def test_kv_bits_keeps_keys_and_values_in_so_many(bits: int, group: int | None, head: int) -> None:
    path = tiny("qwen3", head_dim=head)
    with LocalOpenAI(path, kv_bits=bits, kv_group_size=group, keep_alive=0) as client:
        whole = client.chat.completions.create(**{**ASK, "max_tokens": 20}, n=3)
        assert whole.usage is not None and whole.usage.completion_tokens > 3
        chunks = list(client.chat.completions.create(**{**ASK, "max_tokens": 20}, stream=True))
        said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert [choice.message.content for choice in whole.choices] == [said] * 3
        stats = client.stats()
        # A scale and a bias of 32 bits for each group.
        assert stats.kv_bytes_per_token * 32 == stats.kv_bytes_per_token_unquantised * (bits + 64 / (group or 64))
        with LocalOpenAI(path, keep_alive=0) as plain:
            answer = plain.chat.completions.create(**ASK)
            assert plain.stats().kv_bytes_per_token == stats.kv_bytes_per_token_unquantised
            assert answer.system_fingerprint != whole.system_fingerprint


def test_kv_bits_that_do_not_suit_the_model_are_said_by_each_request() -> None:
    with (
        LocalOpenAI(tiny("qwen3"), kv_bits=8, keep_alive=0) as client,
        pytest.raises(openai.InternalServerError, match=r"'/.*tiny-[^']*' could not be loaded: kv_bits: keys"),
    ):
        client.chat.completions.create(**ASK)


def test_prefix_cache_bytes_says_how_much_is_kept() -> None:
    ask = {**ASK, "messages": LONG}
    for size, found in ((None, True), (0, False), (2**20, True), (1000, False)):
        with LocalOpenAI(tiny("qwen3"), prefix_cache_bytes=size, keep_alive=0) as client:
            answers = [client.chat.completions.create(**ask) for _ in range(2)]
            assert cached(answers[0]) == 0 and (cached(answers[1]) > 0) == found
            assert answers[0].choices == answers[1].choices
            assert client.stats().cache_bytes <= (2**40 if size is None else size)


def test_cache_dir_is_where_they_survive(tmp_path: Path) -> None:
    ask, folder = {**ASK, "messages": LONG}, tmp_path / "prefixes"
    first: Any = None
    for again in (False, True):
        with LocalOpenAI(tiny("qwen3"), cache_dir=folder, keep_alive=0) as client:
            engine = inside.engine(client)
            answer = client.chat.completions.create(**ask)
            assert (cached(answer) > 0) == again
            first = first or answer
            assert answer.choices == first.choices
        assert engine is not None
        assert eventually(partial(getattr, engine, "is_closed"))
        inside.worker(engine).wait(60)
    assert any(file.is_file() for file in folder.rglob("*"))


# -- priority ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("high", "invalid_type"),
        (1.5, "invalid_type"),
        (True, "invalid_type"),
        ([1], "invalid_type"),
        (2**63, "integer_above_max_value"),
        (-(2**63) - 1, "integer_below_min_value"),
    ],
)
def test_a_priority_that_is_no_integer_is_refused(client: LocalOpenAI, value: object, code: str) -> None:
    with refused("priority", code, "'priority'"):
        client.chat.completions.create(**ASK, extra_body={"priority": value})
    with refused("priority", code, "'priority'"):
        client.completions.create(model="any", prompt="Hi", extra_body={"priority": value})


@pytest.mark.parametrize("value", [None, 0, -5, 2**63 - 1, -(2**63)])
def test_any_integer_is_a_priority(client: LocalOpenAI, value: int | None) -> None:
    assert client.chat.completions.create(**ASK, extra_body={"priority": value}).usage is not None


def test_lower_ones_are_served_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "OLDEST_EVERY", 10**9)
    monkeypatch.setattr(prefill, "OLDEST_EVERY", 10**9)
    engine = engine_for("qwen3", EngineOptions(max_rows=1))
    order: list[int] = []
    submit = engine.submit

    def listening(requests: list[GenerationRequest], sink: Any, *more: Any) -> Any:
        put = sink.put

        def noting(index: int, event: Any) -> None:
            if requests[index].priority not in order:
                order.append(requests[index].priority)
            put(index, event)

        monkeypatch.setattr(sink, "put", noting)
        return submit(requests, sink, *more)

    try:
        monkeypatch.setattr(engine, "submit", listening)
        with LocalOpenAI(engine=engine) as client:
            streams = []
            with held(engine):
                Running(engine, request([5, 6, 7], max_tokens=2, priority=-100))
                for priority in (3, 0, -2, 7, 1):
                    body = {"priority": priority}
                    streams.append(client.chat.completions.create(**ASK, extra_body=body, stream=True))
            for stream in streams:
                assert list(stream)
        assert order == [-100, -2, 0, 1, 3, 7]
    finally:
        engine.close()


def test_an_option_that_does_not_exist_is_refused_by_engine_and_loader() -> None:
    """Typed dicts check nothing when they are made."""
    for refuse in (
        lambda options: Engine(lambda: pytest.fail("loaded"), options),
        lambda options: load_model(str(tiny("qwen3")), options),
    ):
        with pytest.raises(TypeError, match="no such options: max_row"):
            refuse(EngineOptions(max_row=2))  # type: ignore[typeddict-unknown-key]


# -- formats ----------------------------------------------------------------------------------------------------------


def tools_of(client: LocalOpenAI, name: str = "any") -> tuple[str | None, str | None]:
    """The names of a model's call format and of what closes its reasoning."""
    runtime = inside.runtime(client)
    engine = runtime.engine(name)
    assert engine is not None
    markup = runtime.served(engine).markup
    return markup.tools and markup.tools.name, markup.think_end


def test_formats_are_those_that_a_caller_names() -> None:
    path = tiny("qwen3")
    with LocalOpenAI(path, keep_alive=0) as client:
        found = tools_of(client)
    with LocalOpenAI(path, tool_format="mistral", reasoning_format="mistral", keep_alive=0) as client:
        assert tools_of(client) == ("mistral", "[/THINK]") != found
    with LocalOpenAI(path, tool_format="none", reasoning_format="none", keep_alive=0) as client:
        assert tools_of(client) == (None, None)
        with refused("tools", "unsupported_value", "loaded with tool_format='none'"):
            client.chat.completions.create(**ASK, tools=[{"type": "function", "function": {"name": "f"}}])


def test_clients_with_different_formats_do_not_share_what_they_know_of_a_model() -> None:
    path = tiny("qwen3")
    with (
        LocalOpenAI(path, tool_format="mistral", keep_alive=0) as one,
        LocalOpenAI(path, tool_format="llama3_json", keep_alive=0) as other,
        LocalOpenAI(path, tool_format="mistral", keep_alive=0) as same,
    ):
        assert tools_of(one)[0] == tools_of(same)[0] == "mistral" and tools_of(other)[0] == "llama3_json"
        assert inside.engine(one) is inside.engine(same) is not inside.engine(other)


def test_models_have_formats_of_their_own() -> None:
    path = tiny("qwen3")
    models = {"a": path, "b": path, "c": path}
    formats = {"a": "mistral", "b": "none"}
    with LocalOpenAI(models=models, tool_format=formats, reasoning_format="think", keep_alive=0) as client:
        assert tools_of(client, "a") == ("mistral", "</think>")
        assert tools_of(client, "b") == (None, "</think>")
        found, end = tools_of(client, "c")
        assert found not in ("mistral", None) and end == "</think>"
