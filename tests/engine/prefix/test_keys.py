"""Prompts whose keys are not their token ids, as where images are: the prefix cache compares keys and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from localai_shim.engine.engine import EngineOptions
from localai_shim.engine.prompts.prefill import PrefillJob
from localai_shim.types import Prompt, Token
from tests.engine.counting import KINDS, counting, expected, tokens
from tests.engine.folders import Fake, flush
from tests.engine.recording import MakeWorld
from tests.samples import only

PLACEHOLDER, IMAGE, OTHER = 7, -(2**63), -(2**40) - 3
TEXT = tokens(40)
IDS = [*TEXT, *[PLACEHOLDER] * 30, *tokens(20, 2)]


def with_image(image: int, ids: list[int] = IDS) -> Prompt:
    return Prompt(ids, keys=[*ids[:40], *[image] * 30, *ids[70:]])


def test_for_text_the_keys_are_the_tokens_themselves() -> None:
    prompt = Prompt([1, 2, 3])
    assert prompt.keys is prompt.tokens


def test_there_is_a_key_for_each_token() -> None:
    with pytest.raises(ValueError, match="2 keys cannot stand for 3 tokens"):
        Prompt([1, 2, 3], keys=[1, 2])


def test_a_prompt_matches_what_has_its_keys() -> None:
    with counting("qwen3") as c:
        assert c.ask(with_image(IMAGE)) == (expected("qwen3", IDS), 89)
        assert c.ask(with_image(IMAGE)) == (expected("qwen3", IDS), 0)
        assert c.ask(with_image(OTHER))[1] == 49, "another image: what comes before it is shared"
        assert c.ask(Prompt(IDS))[1] == 49, "placeholders without an image are yet another"
        other_ids = [*IDS[:40], *[PLACEHOLDER + 1] * 30, *IDS[70:]]
        assert c.ask(with_image(IMAGE, other_ids))[1] == 0, "whatever ids its placeholders have"


@pytest.mark.parametrize("kind", only(["gemma3_text"], KINDS))
def test_a_turn_goes_on_from_its_prompt_s_keys_and_its_output_tokens(kind: str) -> None:
    with counting(kind) as c:
        said, _ = c.ask(with_image(IMAGE))
        going_on = [*IDS, *said, *tokens(12, 3)]
        assert c.ask(with_image(OTHER, going_on))[1] >= 60
        assert c.ask(with_image(IMAGE, going_on)) == (expected(kind, going_on), 12)


@pytest.mark.parametrize("kind", only(["qwen3", "qwen3_next"], KINDS))
def test_prefixes_on_disk_are_found_by_keys_too(kind: str, tmp_path: Path) -> None:
    with counting(kind, EngineOptions(cache_dir=tmp_path)) as c:
        said, _ = c.ask(with_image(IMAGE))
    with counting(kind, EngineOptions(cache_dir=tmp_path)) as c:
        going_on = [*IDS, *said, *tokens(12, 3)]
        assert c.ask(with_image(IMAGE, going_on)) == (expected(kind, going_on), 12)
    for other in (Prompt(IDS), with_image(OTHER)):
        with counting(kind, EngineOptions(cache_dir=tmp_path)) as c:
            assert c.ask(other)[1] >= 49


@pytest.mark.parametrize("low", [0, 1, 2**31, 2**32])
def test_keys_on_disk_are_told_apart_by_all_of_their_bits(low: int, tmp_path: Path) -> None:
    model = Fake()
    cache = model.cache(tmp_path)
    cache.insert(None, [-(2**62) - low] * 40, lambda start: model.row([1] * 40, start))
    flush(cache)
    again = model.cache(tmp_path)
    assert again.start(None, [-(2**62) - low - 2**33] * 41) is None
    started = again.start(None, [-(2**62) - low] * 41)
    assert started is not None and started[1] == 40


def test_prompts_that_wait_share_what_their_keys_share(world: MakeWorld) -> None:
    w = world()
    ids = [PLACEHOLDER] * 300
    for image in (IMAGE, IMAGE, OTHER):
        w.ask(Prompt([*ids, 20, 21], keys=[*[image] * 300, 20, 21]))
    w.run()
    assert w.prefilled(PLACEHOLDER) == 2 * 300


def test_a_preempted_row_goes_on_from_its_keys(world: MakeWorld) -> None:
    w = world()
    prompt = Prompt([PLACEHOLDER] * 100, keys=[IMAGE] * 100)
    [row] = w.ask(prompt, max_tokens=50)
    for _ in range(10):
        w.step()
    assert w.prefixes is not None and w.batch.take(row)
    assert w.prefixes.match_prefix(None, [IMAGE] * 100) == 100
    assert w.prefixes.match_prefix(None, [PLACEHOLDER] * 100) == 0
    output = [event.id for event in w.events[row] if isinstance(event, Token)]
    w.prompts.put(PrefillJob([row], prompt, row.arrival, output))
    w.run()
    assert w.served(row) == 50 and w.prefilled(PLACEHOLDER) == 99
    kept = [*[IMAGE] * 100, *[0] * 49]
    assert w.prefixes.match_prefix(None, kept) == len(kept)
