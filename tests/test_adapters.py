"""LoRA adapters by name: any of them on any row of a batch, each as mlx-lm answers with it alone."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import openai
import pytest
from mlx_lm.utils import quantize_model, save_model

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.engine import inbox
from tests import inside
from tests.engine.harness import eventually
from tests.lora import alone, ids, make_adapter
from tests.tiny import tiny

PROMPTS = [(101, 33), (7, 8, 9, 10, 55), tuple(range(40, 140)), (61,)]
MAX_TOKENS = 16
Folders = dict[str, Path]


KINDS = ("qwen3", "gemma3_text", "qwen3_next", "qwen3_moe", "llama", "4 bits")
"""Full attention, sliding windows, recurrent layers, experts, another family, and packed weights."""


@functools.cache
def model_of(kind: str) -> Path:
    if kind != "4 bits":
        return tiny(kind)
    model, tokenizer = mlx_lm.load(str(tiny("qwen3")))[:2]
    config = json.loads((tiny("qwen3") / "config.json").read_text())
    model, config = quantize_model(model, config, 32, 4)
    folder = Path(tempfile.mkdtemp(prefix="localai_shim-packed-"))
    save_model(folder, model)
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Folders]:
    root = tmp_path_factory.mktemp("adapters")
    return {
        kind: {
            name: make_adapter(root / kind / name, model_of(kind), seed=i, rank=2 + i) for i, name in enumerate("ab")
        }
        for kind in KINDS
    }


def expected(kind: str, folder: Path | None, prompt: tuple[int, ...], max_tokens: int = MAX_TOKENS) -> list[int]:
    return alone(model_of(kind), folder, prompt, max_tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_one_batch_each_have_their_own(kind: str, folders: dict[str, Folders]) -> None:
    adapters = folders[kind]
    with LocalOpenAI(model_of(kind), adapters=adapters) as client, ThreadPoolExecutor(12) as pool:
        asked = [(name, prompt) for prompt in PROMPTS for name in ("a", "any", "b")]
        answers = list(pool.map(lambda each: ids(client, *each), asked))
        again = list(pool.map(lambda each: ids(client, *each), reversed(asked)))  # from the prefix cache
    for (name, prompt), answer, second in zip(asked, answers, reversed(again), strict=True):
        assert answer == second == expected(kind, adapters.get(name), prompt)


def test_the_body_names_one_as_well_and_unknown_ones_are_not_found(folders: dict[str, Folders]) -> None:
    adapters = folders["qwen3"]
    with LocalOpenAI(tiny("qwen3"), adapters=adapters) as client:
        assert ids(client, "any", PROMPTS[0], extra_body={"adapter": "b"}) == expected(
            "qwen3", adapters["b"], PROMPTS[0]
        )
        assert ids(client, "b", PROMPTS[0], extra_body={"adapter": None}) == expected(
            "qwen3", adapters["b"], PROMPTS[0]
        )
        answer = client.chat.completions.create(model="a", messages=[{"role": "user", "content": "Hi"}], max_tokens=2)
        plain = client.chat.completions.create(model="x", messages=[{"role": "user", "content": "Hi"}], max_tokens=2)
        assert answer.model == "a" and answer.system_fingerprint != plain.system_fingerprint
        with pytest.raises(openai.NotFoundError, match=r"The adapter 'c' does not exist. It has 'a' and 'b'"):
            ids(client, "any", PROMPTS[0], extra_body={"adapter": "c"})
        with pytest.raises(openai.BadRequestError, match="adapter"):
            ids(client, "any", PROMPTS[0], extra_body={"adapter": 5})
        listed = {model.id: model for model in client.models.list()}
        base = tiny("qwen3").name
        assert set(listed) == {base, "a", "b"}
        assert listed["a"].parent == base  # type: ignore[attr-defined]
        assert listed["a"].root == str(adapters["a"])  # type: ignore[attr-defined]
        assert client.models.retrieve("b").parent == base  # type: ignore[attr-defined]


def test_the_prefix_cache_never_crosses(folders: dict[str, Folders], tmp_path: Path) -> None:
    adapters, prompt = folders["qwen3"], PROMPTS[2]
    options: dict[str, Any] = {"adapters": adapters, "cache_dir": tmp_path, "keep_alive": 0}
    with LocalOpenAI(tiny("qwen3"), **options) as client:
        for name in ("any", "a", "b"):
            assert ids(client, name, prompt) == expected("qwen3", adapters.get(name), prompt)
            assert ids(client, name, prompt) == expected("qwen3", adapters.get(name), prompt)
        assert client.stats().cache_hits == 3
    with LocalOpenAI(tiny("qwen3"), **options) as client:  # from the folder
        for name in ("b", "any", "a"):
            assert ids(client, name, prompt) == expected("qwen3", adapters.get(name), prompt)


def test_loading_and_unloading_while_others_run(folders: dict[str, Folders], tmp_path: Path) -> None:
    adapters, kind = folders["qwen3"], "qwen3"
    with LocalOpenAI(tiny(kind), adapters={"a": adapters["a"]}) as client:
        stream = client.completions.create(
            model="a", prompt=list(PROMPTS[0]), max_tokens=200, temperature=0, stream=True,
            extra_body={"return_token_ids": True, "ignore_eos": True},
        )  # fmt: skip
        got = [next(stream)]
        client.load_adapter("b", adapters["b"])
        assert ids(client, "b", PROMPTS[1]) == expected(kind, adapters["b"], PROMPTS[1])
        client.load_adapter("a", adapters["b"])  # another under the same name
        assert ids(client, "a", PROMPTS[0]) == expected(kind, adapters["b"], PROMPTS[0])
        client.unload_adapter("a")
        got += [*stream]
        tokens = [token for chunk in got for token in chunk.choices[0].token_ids or ()]  # type: ignore[attr-defined]
        assert tokens[:MAX_TOKENS] == expected(kind, adapters["a"], PROMPTS[0])[: len(tokens)]
        assert len(tokens) == 200
        client.unload_adapter("b")
        with pytest.raises(ValueError, match="there is no adapter 'b': this client has none"):
            client.unload_adapter("b")
        assert eventually(lambda: client.stats().adapter_bytes == 0)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 5}], ids=["greedy", "sampled"])
def test_rows_get_tokens_between_the_pieces_of_loads_and_unloads(
    sampling: dict[str, Any], folders: dict[str, Folders], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "SECONDS_PER_STEP", 0.0)  # a piece a step
    adapters, kind = folders["qwen3"], "qwen3"
    how: dict[str, Any] = {"prompt": list(PROMPTS[0]), "max_tokens": 400, **({"temperature": 0} | sampling)}
    extra = {"return_token_ids": True, "ignore_eos": True}

    def whole(client: LocalOpenAI, model: str) -> Any:
        return client.completions.create(model=model, extra_body=extra, **how).choices[0].token_ids  # type: ignore[attr-defined]

    with LocalOpenAI(tiny(kind), adapters={"a": adapters["a"]}) as client:
        expected = {name: whole(client, name) for name in ("a", "any")}
        streams = {
            name: client.completions.create(model=name, stream=True, extra_body=extra, **how) for name in expected
        }
        got = {name: [next(stream)] for name, stream in streams.items()}
        before = client.stats().steps
        client.load_adapter("b", adapters["b"])
        assert client.stats().steps - before > 4  # of the 8 pieces; what is loaded again may still be there
        for _ in range(3):
            client.load_adapter("b", adapters["b"])
            client.load_adapter("c", adapters["a"])
            assert ids(client, "b", PROMPTS[1]) == alone(model_of(kind), adapters["b"], PROMPTS[1], MAX_TOKENS)
            client.unload_adapter("b")
            client.unload_adapter("c")
        for name, stream in streams.items():
            got[name] += [*stream]
            tokens = [token for chunk in got[name] for token in chunk.choices[0].token_ids or ()]  # type: ignore[attr-defined]
            assert tokens == expected[name]


def test_name_of_an_unloaded_adapter_is_not_found_until_it_is_loaded_again(folders: dict[str, Folders]) -> None:
    adapters, kind = folders["qwen3"], "qwen3"
    base = tiny(kind).name
    with LocalOpenAI(tiny(kind), adapters={"a": adapters["a"], base: adapters["b"]}) as client:
        assert ids(client, base, PROMPTS[0]) == expected(kind, adapters["b"], PROMPTS[0])
        client.unload_adapter("a")  # which no request has named
        client.unload_adapter(base)
        for model in ("a", "any"):
            with pytest.raises(openai.NotFoundError, match="The adapter 'a' does not exist"):
                ids(client.copy(), model, PROMPTS[0], extra_body={} if model == "a" else {"adapter": "a"})
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("a")
        assert client.models.retrieve("any").id == base
        for name in (base, "any"):  # the model's own name, and any that was no adapter's
            assert ids(client, name, PROMPTS[0]) == expected(kind, None, PROMPTS[0])
        client.load_adapter("a", adapters["b"])
        assert ids(client, "a", PROMPTS[0]) == expected(kind, adapters["b"], PROMPTS[0])
        assert client.models.retrieve("a").parent == base  # type: ignore[attr-defined]


def test_two_clients_of_one_engine_each_have_their_names(folders: dict[str, Folders]) -> None:
    adapters, kind = folders["qwen3"], "qwen3"
    with LocalOpenAI(tiny(kind), adapters={"x": adapters["a"]}) as one:
        with LocalOpenAI(tiny(kind), adapters={"x": adapters["b"], "y": adapters["a"]}) as other:
            assert inside.engine(one) is inside.engine(other)
            assert ids(one, "x", PROMPTS[0]) == ids(other, "y", PROMPTS[0]) == expected(kind, adapters["a"], PROMPTS[0])
            assert ids(other, "x", PROMPTS[0]) == expected(kind, adapters["b"], PROMPTS[0])
        assert ids(one, "x", PROMPTS[1]) == expected(kind, adapters["a"], PROMPTS[1])  # the other's are gone


def test_a_bad_folder_is_that_request_s_error_and_neighbours_go_on(folders: dict[str, Folders], tmp_path: Path) -> None:
    bad = make_adapter(tmp_path / "bad", tiny("qwen3"), keys=["self_attn.q_proj"])
    weights = mx.load(str(bad / "adapters.safetensors"))
    assert isinstance(weights, dict)
    name = next(iter(weights))
    mx.save_safetensors(str(bad / "adapters.safetensors"), {**weights, name: mx.zeros((3, 3))})
    adapters = {**folders["qwen3"], "bad": bad}
    with LocalOpenAI(tiny("qwen3"), adapters=adapters) as client, ThreadPoolExecutor(4) as pool:
        neighbour = pool.submit(ids, client, "a", PROMPTS[0])
        for _ in range(2):
            with pytest.raises(openai.BadRequestError) as caught:
                ids(client, "bad", PROMPTS[0])
            assert "(3, 3)" in str(caught.value) and name.rpartition(".")[0] in str(caught.value)
        assert neighbour.result() == expected("qwen3", adapters["a"], PROMPTS[0])
        with pytest.raises(ValueError, match=r"F32 \(3, 3\)"):
            client.load_adapter("worse", bad)
        assert ids(client, "b", PROMPTS[0]) == expected("qwen3", adapters["b"], PROMPTS[0])


def test_what_a_client_cannot_have_is_said_when_it_is_made(folders: dict[str, Folders], tmp_path: Path) -> None:
    adapters = folders["qwen3"]
    with pytest.raises(FileNotFoundError, match=r"there is no folder '.*nowhere' for the adapter 'x'"):
        LocalOpenAI(tiny("qwen3"), adapters={"x": tmp_path / "nowhere"})
    with pytest.raises(ValueError, match="leave them or `models` out"):
        LocalOpenAI(models={"m": tiny("qwen3")}, adapters=adapters)
    with pytest.raises(ValueError, match="leave them or `tensor_parallel` out"):
        LocalOpenAI(tiny("llama"), adapters=adapters, tensor_parallel=2)
    with pytest.raises(ValueError, match="must be a folder or a hub id, not 5"):
        LocalOpenAI(tiny("qwen3"), adapters={"x": 5})  # type: ignore[dict-item]


@pytest.mark.anyio
async def test_async_clients_load_and_answer(folders: dict[str, Folders]) -> None:
    adapters = folders["qwen3"]
    async with AsyncLocalOpenAI(tiny("qwen3")) as client:
        await client.load_adapter("a", adapters["a"])
        answer = await client.completions.create(
            model="a",
            prompt=list(PROMPTS[0]),
            max_tokens=MAX_TOKENS,
            temperature=0,
            extra_body={"return_token_ids": True},
        )
        assert answer.choices[0].token_ids == expected("qwen3", adapters["a"], PROMPTS[0])  # type: ignore[attr-defined]
        await client.unload_adapter("a")
        with pytest.raises(openai.NotFoundError):
            await client.completions.create(model="x", prompt="Hi", extra_body={"adapter": "a"})


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_in_chunks_and_cancels_change_no_other_row(kind: str, folders: dict[str, Folders]) -> None:
    adapters = folders[kind]
    long = tuple(3 + (i * 7) % 90 for i in range(300))
    options: dict[str, Any] = {"adapters": adapters, "max_rows": 3, "max_stall": 0.001}
    with LocalOpenAI(model_of(kind), **options) as client, ThreadPoolExecutor(9) as pool:
        asked = [(name, prompt) for prompt in (long, PROMPTS[0], long[:200]) for name in ("a", "any", "b")]
        gone = client.completions.create(model="b", prompt=list(long), max_tokens=200, stream=True)
        next(gone)
        made = [pool.submit(ids, client, name, prompt, 48) for name, prompt in asked]
        gone.close()
        answers = [each.result() for each in made]
    for (name, prompt), answer in zip(asked, answers, strict=True):
        assert answer == expected(kind, adapters.get(name), prompt, 48)


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_are_verified_with_the_row_s_own(kind: str, folders: dict[str, Folders]) -> None:
    adapters = folders[kind]
    repeated = (5, 6, 7, 8) * 12
    with LocalOpenAI(model_of(kind), adapters=adapters) as client, ThreadPoolExecutor(3) as pool:
        wanted = {name: expected(kind, adapters.get(name), repeated, 40) for name in ("a", "any", "b")}
        tokenizer = inside.engine(client).model.tokenizer

        def ask(name: str) -> Any:
            guess = {"type": "content", "content": tokenizer.decode(wanted[name])}
            return ids(client, name, repeated, 40, extra_body={"prediction": guess})

        for name, answer in zip(wanted, pool.map(ask, wanted), strict=True):
            assert answer == wanted[name]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_make_room_go_on_with_their_own(kind: str, folders: dict[str, Folders]) -> None:
    """A more urgent request takes the only place; the row before it is prefilled again, output and all."""
    adapters = folders[kind]
    with LocalOpenAI(model_of(kind), adapters=adapters, max_rows=1) as client:
        stream = client.completions.create(
            model="a", prompt=list(PROMPTS[0]), max_tokens=150, temperature=0, stream=True,
            extra_body={"return_token_ids": True, "ignore_eos": True, "priority": 5},
        )  # fmt: skip
        got = [next(stream)]
        assert ids(client, "b", PROMPTS[1]) == expected(kind, adapters["b"], PROMPTS[1])
        got += [*stream]
        tokens = [token for chunk in got for token in chunk.choices[0].token_ids or ()]  # type: ignore[attr-defined]
        assert client.stats().preempted >= 1
        whole = client.completions.create(
            model="a", prompt=list(PROMPTS[0]), max_tokens=150, temperature=0,
            extra_body={"return_token_ids": True, "ignore_eos": True},
        )  # fmt: skip
        assert tokens == whole.choices[0].token_ids  # type: ignore[attr-defined]


def test_an_adapter_is_another_embedder(folders: dict[str, Folders]) -> None:
    adapters = folders["qwen3"]
    with LocalOpenAI(tiny("qwen3"), adapters=adapters) as client:

        def vectors(name: str) -> list[list[float]]:
            made = client.embeddings.create(model=name, input=["one text", "another"]).data
            return [each.embedding for each in made]

        plain, adapted = vectors("any"), vectors("a")
        assert plain != adapted != vectors("b")
        assert vectors("any") == plain
        with LocalOpenAI(tiny("qwen3"), adapter_path=adapters["a"]) as alone_with_it:
            one = alone_with_it.embeddings.create(model="any", input=["one text", "another"]).data
        for mine, its in zip(adapted, one, strict=True):
            assert mine == pytest.approx(its.embedding, abs=1e-4)


def test_chat_and_responses_have_choices_streams_and_schemas_with_one(folders: dict[str, Folders]) -> None:
    adapters = folders["qwen3"]
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    format: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    messages: Any = [{"role": "user", "content": "Hi"}]
    with LocalOpenAI(tiny("qwen3"), adapters=adapters) as client:
        forced = client.chat.completions.create(model="a", messages=messages, response_format=format, temperature=0)
        assert forced.choices[0].message.content in ('{"n":1}', '{"n":2}', '{"n": 1}', '{"n": 2}')
        several = client.chat.completions.create(model="b", messages=messages, n=3, seed=1, max_tokens=6)
        chunks = [*client.chat.completions.create(model="b", messages=messages, n=3, seed=1, max_tokens=6, stream=True)]
        for choice in several.choices:
            text = "".join(c.delta.content or "" for k in chunks for c in k.choices if c.index == choice.index)
            assert text == choice.message.content
        response = client.responses.create(model="a", input="Hi", max_output_tokens=5, temperature=0)
        assert response.model == "a"
        direct = client.chat.completions.create(model="a", messages=messages, max_tokens=5, temperature=0)
        assert response.output_text == direct.choices[0].message.content


def test_an_adapter_that_leaves_no_memory_for_rows_is_refused(folders: dict[str, Folders]) -> None:
    weights = (tiny("qwen3") / "model.safetensors").stat().st_size
    with LocalOpenAI(tiny("qwen3"), adapters=folders["qwen3"]) as client:
        ids(client, "a", PROMPTS[0])
        size = client.stats().adapter_bytes
    most = weights + 290 * client_bytes_per_token() + size // 2
    with LocalOpenAI(tiny("qwen3"), adapters=folders["qwen3"], memory_limit=most) as client:
        with pytest.raises(openai.BadRequestError, match="no memory for another adapter"):
            ids(client, "a", PROMPTS[0])
        assert ids(client, "any", PROMPTS[0]) == expected("qwen3", None, PROMPTS[0])
        assert client.stats().adapter_bytes == 0


def client_bytes_per_token() -> int:
    with LocalOpenAI(tiny("qwen3")) as client:
        client.completions.create(model="any", prompt=[5], max_tokens=1)
        return client.stats().kv_bytes_per_token


def test_the_log_and_the_stats_name_it(folders: dict[str, Folders], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="localai_shim")
    with LocalOpenAI(tiny("qwen3"), adapters=folders["qwen3"]) as client:
        ids(client, "a", PROMPTS[0])
        client.embeddings.create(model="b", input="one")
        ids(client, "any", PROMPTS[0])
        assert client.stats().adapter_bytes > 0
    lines = [record.getMessage() for record in caplog.records if "model=" in record.getMessage()]
    assert [re.findall(r" adapter=(\w+) ", line) for line in lines] == [["a"], ["b"], []]


def test_a_batch_s_lines_each_name_their_own(folders: dict[str, Folders]) -> None:
    adapters = folders["qwen3"]
    with LocalOpenAI(tiny("qwen3"), adapters=adapters) as client:
        names, extra = ["a", "any", "b"], {"return_token_ids": True}
        lines = [
            {
                "custom_id": name,
                "method": "POST",
                "url": "/v1/completions",
                "body": {"model": name, "prompt": list(PROMPTS[0]), "max_tokens": 8, "temperature": 0, **extra},
            }
            for name in names
        ]  # fmt: skip
        text = "\n".join(json.dumps(line) for line in lines)
        file = client.files.create(file=("lines.jsonl", text.encode()), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
        assert eventually(lambda: client.batches.retrieve(batch.id).status == "completed")
        made = client.batches.retrieve(batch.id).output_file_id
        assert made is not None
        answers = {each["custom_id"]: each for each in map(json.loads, client.files.content(made).text.splitlines())}
    for name in names:
        body = answers[name]["response"]["body"]
        assert body["choices"][0]["token_ids"] == expected("qwen3", adapters.get(name), PROMPTS[0], 8)
        assert body["model"] == (name if name in adapters else tiny("qwen3").name)
