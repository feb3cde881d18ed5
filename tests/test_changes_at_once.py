"""Two changes of a model at once, or one amid what else goes on: each is done whole or not at all."""

from __future__ import annotations

import errno
import functools
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.engine.prefix import store as stores
from localai_shim.engine.prefix.store import PrefixStore
from localai_shim.types import EngineClosedError
from tests import inside
from tests import tiny as models
from tests.engine.harness import Gate, eventually, stepping
from tests.lora import alone, ids, make_adapter
from tests.standing import engine_of, standing
from tests.updating import arrays, begin, changed, greedy, outputs, tokens_of

PROMPT, LONG = (101, 33), tuple(3 + (i * 7) % 90 for i in range(120))


@functools.cache
def tiny() -> Path:
    """A model that no other test has."""
    return shutil.copytree(models.tiny("qwen3"), Path(tempfile.mkdtemp(prefix="localai_shim-")) / "qwen3")


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return changed(tiny(), tmp_path_factory.mktemp("weights") / "new")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_adapter(tmp_path_factory.mktemp("adapters") / "good", tiny(), seed=1)


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """An adapter with a factor for other inputs, which is found out in the engine."""
    folder = make_adapter(tmp_path / "bad", tiny(), seed=2)
    weights: Any = mx.load(str(folder / "adapters.safetensors"))
    mx.save_safetensors(str(folder / "adapters.safetensors"), {**weights, min(weights): mx.zeros((3, 4))})
    return folder


# -- adapters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["the load", "the reload"])
def test_an_adapter_is_loaded_anew_while_its_first_load_fails(first: str, good: Path, bad: Path) -> None:
    with LocalOpenAI(tiny(), adapters={"a": bad}, keep_alive=0) as client, ThreadPoolExecutor(2) as pool:

        def load() -> Any:
            return pool.submit(ids, client, "a", PROMPT)

        def reload() -> Any:
            return pool.submit(client.load_adapter, "a", good)

        with standing(client) as queued:
            one = load() if first == "the load" else reload()
            queued(1)
            other = reload() if first == "the load" else load()
            queued(2)
        failing, loading = (one, other) if first == "the load" else (other, one)
        with pytest.raises(openai.BadRequestError, match="does not fit"):
            failing.result()
        loading.result()
        assert ids(client, "a", PROMPT) == alone(tiny(), good, PROMPT, 16)
        client.unload_adapter("a")
        assert eventually(lambda: client.stats().adapter_bytes == 0)


def test_an_adapter_that_is_unloaded_amid_its_first_load_leaves_nothing(good: Path) -> None:
    with LocalOpenAI(tiny(), adapters={"a": good}, keep_alive=0) as client, ThreadPoolExecutor(1) as pool:
        with standing(client) as queued:
            asked = pool.submit(ids, client, "a", PROMPT)
            queued(1)
            client.unload_adapter("a")
        with pytest.raises(openai.NotFoundError, match="'a'"):
            asked.result()
        assert ids(client, "any", PROMPT) == alone(tiny(), None, PROMPT, 16)
        assert eventually(lambda: client.stats().adapter_bytes == 0)
        client.load_adapter("a", good)
        assert ids(client, "a", PROMPT) == alone(tiny(), good, PROMPT, 16)


def test_two_loads_of_one_name_at_once_leave_one_of_them(good: Path, tmp_path: Path) -> None:
    folders = [good, make_adapter(tmp_path / "other", tiny(), seed=3)]
    with LocalOpenAI(tiny(), keep_alive=0) as client, ThreadPoolExecutor(2) as pool:
        with standing(client) as queued:
            loading = [pool.submit(client.load_adapter, "a", folder) for folder in folders]
            queued(2)
        for each in loading:
            each.result()
        assert ids(client, "a", PROMPT) in [alone(tiny(), folder, PROMPT, 16) for folder in folders]
        assert client.stats().adapter_bytes > 0
        client.unload_adapter("a")
        assert eventually(lambda: client.stats().adapter_bytes == 0)


@pytest.mark.parametrize("how", ["asked for", "loaded"])
def test_an_adapter_of_a_client_that_is_closed_amid_its_load_leaves_the_engine(how: str, good: Path) -> None:
    with LocalOpenAI(tiny()) as other, ThreadPoolExecutor(1) as pool:
        client = LocalOpenAI(tiny(), adapters={"a": good})
        assert inside.engine(client) is inside.engine(other)
        with standing(other) as queued:
            call: Any = ids if how == "asked for" else LocalOpenAI.load_adapter
            made = pool.submit(call, client, *(("a", PROMPT) if how == "asked for" else ("b", good)))
            queued(1)
            client.close()
        error = made.exception(60)
        assert error is None or isinstance(error, openai.OpenAIError | EngineClosedError)
        assert ids(other, "any", PROMPT) == alone(tiny(), None, PROMPT, 16)
        assert eventually(lambda: other.stats().adapter_bytes == 0)


@pytest.mark.parametrize("first", ["adapter", "weights"])
def test_weights_change_while_an_adapter_loads(first: str, good: Path, new: Path) -> None:
    with LocalOpenAI(tiny(), adapters={"a": good}, keep_alive=0) as client, ThreadPoolExecutor(2) as pool:

        def ask() -> Any:
            return pool.submit(ids, client, "a", PROMPT)

        def update() -> Any:
            return pool.submit(client.update_weights, new)

        with standing(client) as queued:
            one = ask() if first == "adapter" else update()
            queued(1)
            other = update() if first == "adapter" else ask()
            queued(2)
        asked, updated = (one, other) if first == "adapter" else (other, one)
        updated.result()
        assert asked.result() == ids(client, "a", PROMPT) == alone(new, good, PROMPT, 16)
        assert ids(client, "any", PROMPT) == alone(new, None, PROMPT, 16)
        prints = {name: client.completions.create(model=name, prompt="Hi", max_tokens=1) for name in ("a", "any")}
        assert prints["a"].system_fingerprint != prints["any"].system_fingerprint
        assert (prints["a"].system_fingerprint or "").startswith(prints["any"].system_fingerprint or "none")


# -- weights --------------------------------------------------------------------------------------------------------


def test_a_row_that_was_preempted_goes_on_with_the_new_weights(new: Path) -> None:
    kept: dict[tuple[int, ...], list[int]] = {}
    with LocalOpenAI(tiny(), max_rows=1, keep_alive=0) as client, ThreadPoolExecutor(1) as pool:
        engine = engine_of(client)
        gate = Gate(lambda: engine.stats().preempted > 0)
        with stepping(engine, gate):
            made = begin(client, PROMPT, 150, priority=5)
            got = [next(made)]
            urgent = begin(client, LONG, 30)
            gate.wait()  # the first one waits, with what it has generated
            updating = pool.submit(client.update_weights, new)
            assert eventually(lambda: engine._inbox.qsize() > 0)
            noted = engine._change(lambda: kept.update(outputs(client)))  # before another step
            gate.open()
            noted.result()
            updating.result()
            tokens, others = tokens_of([*got, *made]), tokens_of(urgent)
    for prompt, all_of_it in ((PROMPT, tokens), (LONG, others)):
        before = kept[prompt]
        assert all_of_it[: len(before)] == before == greedy(tiny(), [*prompt], len(before))
        assert all_of_it[len(before) :] == greedy(new, [*prompt, *before], len(all_of_it) - len(before))
    assert kept[PROMPT] and (len(tokens), len(others)) == (150, 30)


def test_texts_of_one_request_all_have_vectors_of_the_new_weights(new: Path) -> None:
    """Those that had one of the old weights before, too."""
    texts = ["one " * count for count in (2, 14, 40)]  # not two of them in one pass
    with LocalOpenAI(new, keep_alive=0) as fresh:
        wanted = [each.embedding for each in fresh.embeddings.create(model="any", input=texts).data]
    with LocalOpenAI(tiny(), keep_alive=0) as client, ThreadPoolExecutor(2) as pool:
        engine, passes = engine_of(client), list[list[int]]()
        encode, gate = engine.model.heads["embed"], Gate(lambda: len(passes) == 1)

        class Encoding:
            def __call__(self, texts: Any, *rest: Any) -> Any:
                passes.append([len(text) for text in texts])
                gate()
                return encode(texts, *rest)

            def __getattr__(self, name: str) -> Any:
                return getattr(encode, name)

        engine.model.heads["embed"] = Encoding()
        asked = pool.submit(client.embeddings.create, model="any", input=texts)
        gate.wait()
        updating = pool.submit(client.update_weights, new)
        assert eventually(lambda: engine._inbox.qsize() > 0)
        gate.open()
        updating.result()
        for each, expected in zip(asked.result().data, wanted, strict=True):
            np.testing.assert_allclose(each.embedding, expected, atol=1e-5)
    [during] = passes[0]
    assert sum(during in each for each in passes) == 2  # the text that was amid it was run again; on a GPU with another


@pytest.mark.parametrize("full", [False, True])
def test_nothing_of_the_old_weights_is_written_or_found_where_a_write_is_cut_off(
    full: bool, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where the disk is full, which closing the file tells."""
    begun, write = threading.Event(), PrefixStore.write

    def written(store: PrefixStore, *args: Any) -> Any:
        pieces = write(store, *args)
        yield next(pieces)
        if not begun.is_set():  # the update comes in its midst
            begun.set()
            assert eventually(lambda: engine._inbox.qsize() > 0)
        try:
            yield from pieces
        except GeneratorExit:
            if full:
                raise OSError(errno.ENOSPC, "no space left") from None
            raise

    monkeypatch.setattr(PrefixStore, "write", written)
    monkeypatch.setattr(stores, "PIECE_BYTES", 1000)
    options: dict[str, Any] = {"cache_dir": tmp_path, "keep_alive": 0}
    with LocalOpenAI(tiny(), **options) as client, ThreadPoolExecutor(1) as pool:
        engine = engine_of(client)
        ids(client, "any", LONG)
        assert begun.wait(60)
        with standing(client) as queued:
            [unfinished] = tmp_path.rglob("*.part.safetensors")
            updating = pool.submit(client.update_weights, new)
            queued(1)
        updating.result()
        assert not unfinished.exists()
        assert ids(client, "any", LONG) == alone(new, None, LONG, 16)
        assert client.stats().cache_hits == 0
    monkeypatch.undo()
    with LocalOpenAI(tiny(), **options) as client:
        assert ids(client, "any", LONG) == alone(tiny(), None, LONG, 16)
    assert not [*tmp_path.rglob("*.part.safetensors")]


def test_two_updates_at_once_are_both_done(new: Path, tmp_path: Path) -> None:
    """Of different tensors: the model has all of them afterwards, in whichever order they came."""
    names = ["model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.down_proj.weight"]
    theirs = [{name: np.array(arrays(new)[name])} for name in names]
    mixed = shutil.copytree(tiny(), tmp_path / "mixed")
    both = {name: arrays(new)[name] for name in names}
    mx.save_safetensors(str(mixed / "model.safetensors"), {**arrays(tiny()), **both}, {"format": "mlx"})
    with LocalOpenAI(tiny()) as client, ThreadPoolExecutor(2) as pool:
        ids(client, "any", PROMPT)
        with standing(client) as queued:
            updating = [pool.submit(client.update_weights, each) for each in theirs]
            queued(2)
        for each in updating:
            each.result()
        assert ids(client, "any", PROMPT) == alone(mixed, None, PROMPT, 16)
        with LocalOpenAI(tiny()) as later:
            assert ids(later, "any", PROMPT) == alone(tiny(), None, PROMPT, 16)


@pytest.mark.parametrize("fails", [0, 1])
def test_an_update_that_fails_beside_one_that_does_not_gives_nobody_else_its_model(fails: int, new: Path) -> None:
    wrong = {"model.norm.weight": np.zeros((3, 5), np.float32)}
    given: list[Any] = [wrong, new] if fails == 0 else [new, wrong]
    with LocalOpenAI(tiny()) as client, ThreadPoolExecutor(2) as pool:
        with standing(client) as queued:
            updating = []
            for i, each in enumerate(given):
                updating.append(pool.submit(client.update_weights, each))
                queued(i + 1)
        with pytest.raises(ValueError, match=r"'model\.norm\.weight' has the shape"):
            updating[fails].result()
        updating[1 - fails].result()
        assert ids(client, "any", PROMPT) == alone(new, None, PROMPT, 16)
        with LocalOpenAI(tiny()) as later:
            assert ids(later, "any", PROMPT) == alone(tiny(), None, PROMPT, 16)


def test_all_updates_that_fail_leave_the_model_to_all(new: Path) -> None:
    wrong = {"model.norm.weight": np.zeros((3, 5), np.float32)}
    with LocalOpenAI(tiny()) as client, ThreadPoolExecutor(2) as pool:
        with standing(client) as queued:
            updating = [pool.submit(client.update_weights, wrong) for _ in range(2)]
            queued(2)
        assert all(isinstance(each.exception(), ValueError) for each in updating)
        with LocalOpenAI(tiny()) as later:
            assert inside.engine(later) is inside.engine(client)


@pytest.mark.parametrize("running", ["continue", "fail"])
def test_one_tensor_of_another_shape_among_all_leaves_everything_as_it_was(running: Any, new: Path) -> None:
    given = {**arrays(new), "model.layers.1.mlp.down_proj.weight": np.zeros((3, 5), np.float32)}
    with LocalOpenAI(tiny(), keep_alive=0) as client:
        stream = begin(client, PROMPT, 60)
        got = [next(stream)]
        with pytest.raises(
            ValueError, match=r"nothing has changed: 'model\.layers\.1\.mlp\.down_proj\.weight' has the shape"
        ):
            client.update_weights(given, running=running)
        assert tokens_of([*got, *stream]) == greedy(tiny(), [*PROMPT], 60)
        model = inside.network(engine_of(client).model)
        for name, array in arrays(tiny()).items():
            held = functools.reduce(lambda at, part: at[int(part) if part.isdigit() else part], name.split("."), model)
            np.testing.assert_array_equal(np.array(held), np.array(array))


def test_a_client_that_is_closed_amid_an_update_ends_it(new: Path) -> None:
    client = LocalOpenAI(tiny(), keep_alive=0)
    with ThreadPoolExecutor(2) as pool:
        engine = engine_of(client)
        with standing(client) as queued:
            updating = pool.submit(client.update_weights, new)
            queued(1)
            closing = pool.submit(client.close)
            assert eventually(lambda: inside.loop(engine).closing)
        closing.result(60)
        error = updating.exception(60)
        assert error is None or isinstance(error, EngineClosedError)
        with pytest.raises(EngineClosedError, match="closed"):
            client.update_weights(new)
    with LocalOpenAI(tiny(), keep_alive=0) as later:
        assert ids(later, "any", PROMPT) == alone(tiny(), None, PROMPT, 16)
