"""What a model held is given back when its engine ends, and a load that fails leaves nothing behind.

MLX's memory is invisible to Python's garbage collector, which runs seldom: nothing may wait for it. It is off here.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import mlx.core as mx
import mlx_lm.utils
import openai
import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper

from localai_shim import LocalOpenAI
from localai_shim.backends.machine import is_out_of_memory
from localai_shim.backends.x86 import forms as cpu_forms
from localai_shim.engine.engine import Engine
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions
from localai_shim.runtime import engines as runtime
from localai_shim.runtime import sources
from localai_shim.types import ModelLoadError, RowError
from tests import inside
from tests.engine.harness import Running, engine_for, eventually, request
from tests.samples import only
from tests.tiny import make_model, tiny

pytestmark = pytest.mark.usefixtures("without_the_garbage_collector")
ROUNDS = 10
SLACK = 8192  # bytes: random states and the like, a little more on a GPU
MESSAGES: Any = [{"role": "user", "content": "Hello there"}]
TOOL: Any = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}


@pytest.fixture(scope="module", autouse=True)
def _without_engines_of_other_tests() -> None:
    """Those that stay loaded for a while would end amid a measurement."""
    for shared in list(runtime._shared.values()):
        shared.unload()


@pytest.fixture(scope="module")
def path() -> str:
    """A model of which no other test has an engine."""
    return str(tiny("qwen3", rope_theta=20000.0))


@pytest.fixture(scope="module")
def builtin_copy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The built-in checkpoint in a folder of its own: it knows tools."""
    folder = tmp_path_factory.mktemp("builtin") / "model"
    shutil.copytree(sources.builtin_path(), folder)
    return str(folder)


def weights(path: str) -> int:
    return sum(file.stat().st_size for file in Path(path).glob("*.safetensors"))


def text(client: LocalOpenAI) -> None:
    client.chat.completions.create(model="any", messages=MESSAGES, max_tokens=4)


def stream(client: LocalOpenAI) -> None:
    with client.chat.completions.create(model="any", messages=MESSAGES, max_tokens=40, stream=True) as chunks:
        next(chunks)


def grammar(client: LocalOpenAI) -> None:
    client.chat.completions.create(
        model="any", messages=MESSAGES, max_tokens=4, response_format={"type": "json_object"}
    )


def response(client: LocalOpenAI) -> None:
    client.responses.create(model="any", input="Hello", max_output_tokens=16)


def tools(client: LocalOpenAI) -> None:
    client.chat.completions.create(model="any", messages=MESSAGES, max_tokens=8, tools=[TOOL])


def tools_used(client: LocalOpenAI) -> None:
    client.chat.completions.create(model="any", messages=MESSAGES, max_tokens=30, tools=[TOOL], tool_choice="required")


# -- engines that end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", only([text, grammar, response], [text, stream, grammar, response]))
def test_ten_rounds_of_loading_and_closing_leave_no_memory_behind(
    path: str, ask: Callable[[LocalOpenAI], None]
) -> None:
    with LocalOpenAI(path, keep_alive=0) as client:
        ask(client)  # bounded caches of the process drop what earlier tests left
    before = mx.get_active_memory()
    for _ in range(ROUNDS):
        with LocalOpenAI(path, keep_alive=0) as client:
            ask(client)
            assert mx.get_active_memory() >= before + weights(path)
        assert mx.get_active_memory() <= before + SLACK
    assert mx.get_cache_memory() <= SLACK, "and the system has it"


def test_rounds_with_tools_leave_no_memory_behind(builtin_copy: str) -> None:
    before = None
    for ask in (tools, tools_used) * 3:
        with LocalOpenAI(builtin_copy, keep_alive=0) as client:
            ask(client)
        if before is not None:
            assert mx.get_active_memory() <= before + SLACK
        elif ask is tools_used:  # bounded caches, such as cosines of positions, are filled
            before = mx.get_active_memory()


def test_two_models_in_turn_take_no_more_than_the_one_that_is_loaded(path: str) -> None:
    before = mx.get_active_memory()
    other = str(tiny("gemma3_text", rope_theta=20000.0))
    for _ in range(ROUNDS // 2):
        for model in (path, other):
            with LocalOpenAI(model, keep_alive=0) as client:
                grammar(client)
            assert mx.get_active_memory() <= before + SLACK


def test_memory_comes_back_when_keep_alive_runs_out(path: str) -> None:
    before = mx.get_active_memory()
    with LocalOpenAI(path, keep_alive=0.05) as client:
        grammar(client)
    assert eventually(lambda: mx.get_active_memory() <= before + SLACK)


@pytest.mark.parametrize("for_good", [-1, float("inf"), 1e300])
def test_keep_alive_below_zero_keeps_the_model_until_somebody_else_lets_it_go(path: str, for_good: float) -> None:
    with LocalOpenAI(path, keep_alive=for_good) as client:
        text(client)
        engine = inside.engine(client)
    assert engine is not None and not engine.is_closed
    with LocalOpenAI(path, keep_alive=0) as again:
        assert inside.engine(again) is engine
    assert engine.is_closed


def test_an_answer_and_a_failure_that_somebody_keeps_hold_no_model(path: str) -> None:
    """Tracebacks hold the frames they came through, and these what they worked with."""
    before = mx.get_active_memory()
    engine = engine_for("qwen3")

    def failing(step: Any) -> Any:
        raise ZeroDivisionError

    engine.model.forward = failing  # type: ignore[method-assign]
    with pytest.raises(RowError) as kept:
        Running(engine, request([5, 6, 7])).finish()
    engine.close()
    assert isinstance(kept.value.__cause__, ZeroDivisionError)
    del failing
    assert mx.get_active_memory() <= before + SLACK


def test_what_the_endpoints_keep_of_a_model_holds_none_of_its_arrays(path: str) -> None:
    """llguidance's tokenizer holds what encodes text for it, and the collector cannot see that it does."""
    before = mx.get_active_memory()
    client = LocalOpenAI(path, keep_alive=0)
    engine = inside.engine(client)
    assert engine is not None
    served = inside.runtime(client).served(engine)
    _ = served.grammars.vocabulary.tokenizer
    client.close()
    assert mx.get_active_memory() <= before + SLACK
    assert served.tokenizer.encode("Hello") == engine_free_encoding(path, "Hello")


def engine_free_encoding(path: str, text: str) -> list[int]:
    tokenizer = mlx_lm.utils.load_tokenizer(Path(path))
    assert isinstance(tokenizer, TokenizerWrapper)
    return list(tokenizer.encode(text))


def test_an_engine_that_collects_garbage_as_it_ends_waits_for_nobody(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage may be a client, whose finalizer releases another engine, while somebody waits for this one."""
    monkeypatch.undo()  # the collector runs
    dropped: list[Any] = [LocalOpenAI(path, keep_alive=0, max_rows=3)]
    other = inside.engine(dropped[0])
    assert other is not None
    other.wait()
    dropped.append(dropped)
    client = LocalOpenAI(path, keep_alive=0, max_rows=4)
    kept = inside.engine(client).model  # type: ignore[union-attr]  # makes the engine look for who holds it
    del dropped
    client.close()
    assert eventually(lambda: other.is_closed) and kept.weight_bytes


# -- loads that fail -------------------------------------------------------------------------------------------------


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that were loaded, one entry each time."""
    told: list[str] = []
    load = mlx_lm.utils.load

    def counted(path: str, **options: Any) -> Any:
        told.append(path)
        return load(path, **options)

    monkeypatch.setattr(mlx_lm.utils, "load", counted)
    return told


def fails(client: LocalOpenAI) -> str:
    with pytest.raises(openai.InternalServerError) as caught:
        text(client)
    return caught.value.message


def test_five_requests_to_a_model_that_does_not_fit_load_it_once_and_leave_nothing(path: str, loads: list[str]) -> None:
    before = mx.get_active_memory()
    with LocalOpenAI(path, memory_limit=1000, keep_alive=0) as client:
        messages = {fails(client) for _ in range(5)}
        assert len(messages) == 1 and "memory_limit is 1000 bytes" in messages.pop()
        assert mx.get_active_memory() <= before + SLACK
    assert len(loads) == 1
    assert not any(source.path == path for source in runtime._shared)


def test_weights_that_do_not_fit_their_config_are_read_once(tmp_path: Path, loads: list[str]) -> None:
    folder = make_model(tmp_path / "broken", "qwen3")
    config = json.loads((folder / "config.json").read_text())
    good = json.dumps(config)
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 32}))
    before = mx.get_active_memory()
    with LocalOpenAI(folder, keep_alive=0) as client:
        for _ in range(5):
            fails(client)
        assert len(loads) == 1
        assert mx.get_active_memory() <= before + SLACK
        (folder / "config.json").write_text(good)
        text(client)  # whoever mends the folder need not make a new client
    assert len(loads) == 2


def test_clients_of_one_model_share_its_failure(path: str, loads: list[str]) -> None:
    with LocalOpenAI(path, memory_limit=1001) as first, LocalOpenAI(path, memory_limit=1001) as second:
        assert fails(first) == fails(second)
    assert len(loads) == 1


def test_a_reason_that_passes_is_tried_again(path: str, loads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from localai_shim.backends import forms as machines

    widen, failing = cpu_forms._widen, [True]

    def exhausted(model: Any) -> None:
        if failing:
            raise RuntimeError("[malloc] Unable to allocate 5000 bytes.")
        widen(model)

    monkeypatch.setattr(cpu_forms, "_widen", exhausted)
    monkeypatch.setattr(machines, "has_gpu", lambda: False)
    before = mx.get_active_memory()
    with LocalOpenAI(path, keep_alive=0) as client:
        for _ in range(2):
            assert "Unable to allocate" in fails(client)
        failing.clear()
        text(client)
    assert len(loads) > 2
    assert mx.get_active_memory() <= before + SLACK


def test_an_import_that_failed_is_tried_again(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may be importing transformers, which then shows half-made modules."""
    from localai_shim.models import loading

    fetch, failing = loading.fetch, [True]

    def interrupted(*args: Any) -> Path:
        if failing:
            raise ImportError("cannot import name 'AutoTokenizer' from 'transformers'")
        return fetch(*args)

    monkeypatch.setattr(loading, "fetch", interrupted)
    with LocalOpenAI(path, keep_alive=0) as client:
        assert "AutoTokenizer" in fails(client)
        failing.clear()
        text(client)


def test_a_network_that_failed_is_tried_again_and_a_name_that_is_none_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for name, transient in (("nobody/nothing", True), ("no--body/..", False)):
        with pytest.raises(ModelLoadError) as caught:
            load_model(name, LoadOptions())
        assert caught.value.transient is transient and caught.value.missing


def test_want_of_memory_is_told_by_what_mlx_and_python_raise() -> None:
    assert is_out_of_memory(RuntimeError("[malloc] Unable to allocate 8 bytes.")) and is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError("memory_limit is 5 bytes"))


def test_a_failure_that_is_raised_again_and_again_does_not_hold_those_who_asked() -> None:
    def load() -> Any:
        raise ValueError("damaged")

    engine: Engine[Any] = Engine(load)
    raised = []
    for _ in range(3):
        with pytest.raises(ModelLoadError, match="damaged") as caught:
            _ = engine.model
        raised.append(caught.value)
    assert len({id(each) for each in raised}) == 3
    assert isinstance(raised[0].__cause__, ValueError)
