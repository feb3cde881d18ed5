"""A head whose model gets other weights: it has to prove itself again, and keeps nothing of the old ones."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from localai_shim.engine.drafts import head as drafting
from localai_shim.engine.drafts.head import HeadDrafter
from localai_shim.models.weights import copy_weights
from tests import heads, inside
from tests.engine.guessing import speculate
from tests.engine.harness import GREEDY, Running, generate, request
from tests.engine.head_engines import SHARE, counts, drafter, engine_of, guesses_compared
from tests.engine.sampled_rows import prompt

FOREIGN = 30 / SHARE
"""Factor for what a model's layers add: the head, which knows nothing of them, is seldom right."""


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts are run whatever they cost, and come from heads only."""
    speculate(monkeypatch)
    monkeypatch.setattr(HeadDrafter, "seconds", lambda self, rows, drafts, plain: 0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(heads.model_with_head(tmp_path_factory.mktemp("heads") / "model", "qwen3_5", share=SHARE))


def weights(folder: str, share: float = 1.0) -> Any:
    """Weights of a model whose layers add only a share of their outputs."""
    import mlx.core as mx

    loaded = mx.load(str(Path(folder) / "model.safetensors"))
    assert isinstance(loaded, dict)
    chosen = {name: array for name, array in loaded.items() if name.endswith(heads.OUTPUTS) and "mtp." not in name}
    return copy_weights({name: array * share for name, array in chosen.items()})


def asked() -> list[Any]:
    return [request(prompt(i), GREEDY, 60, ignore_eos=True) for i in range(6)]


def test_weights_that_make_a_proven_head_wrong_turn_it_off_and_right_ones_turn_it_on(
    folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engine_of(folder)
    own, speculation = drafter(engine), inside.setup(engine).speculation
    before = generate(engine, *asked())
    assert own._is_proven and own.reads_hidden and speculation._trust[False][own].share > 0.5
    with caplog.at_level(logging.WARNING, "localai_shim"):
        engine.update_weights(weights(folder, FOREIGN)).result()
        assert (own._is_proven, own._compared, speculation._trust) == (False, 0, {})
        others = generate(engine, *asked())
        assert others != before and not own.reads_hidden and own.nbytes == 0
        drafted = counts(engine)[0]
        assert generate(engine, *asked()) == others and counts(engine)[0] == drafted
    [line] = [record.getMessage() for record in caplog.records if "MTP" in record.getMessage()]
    assert line.startswith("the MTP head of 'model' was right in ")
    assert line.endswith("Probably the model's new weights are too far from those that the head was trained with")
    engine.update_weights(weights(folder)).result()
    assert own.reads_hidden and not own._is_proven
    assert generate(engine, *asked()) == before
    assert own._is_proven and own.reads_hidden and counts(engine)[0] > drafted + 50
    engine.close()
    plain = engine_of(folder, drafts=False)
    plain.wait()
    plain.update_weights(weights(folder, FOREIGN)).result()
    assert generate(plain, *asked()) == others
    plain.close()


def test_head_reads_all_tokens_of_running_rows_again(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses after the update are those of the head alone, from the first token on, with the new weights."""
    monkeypatch.setattr(drafting, "MIN_AGREEMENT", 0.0)
    engine = engine_of(folder)
    with guesses_compared(engine) as seen:
        running = Running(engine, [request(prompt(i), GREEDY, 400, ignore_eos=True) for i in (2, 5)])
        running.read(40)
        before = len(seen)
        engine.update_weights(weights(folder, 0.5 * FOREIGN)).result()
        running.read(40)
        running.cancel()
    engine.close()
    assert before > 5 and len(seen) > before + 5
    assert all(its == expected for _, its, expected in seen)


def test_acceptance_of_a_row_is_what_the_new_weights_are_trusted_with(folder: str) -> None:
    engine = engine_of(folder)
    own, speculation = drafter(engine), inside.setup(engine).speculation
    with guesses_compared(engine) as seen:
        generate(engine, request(prompt(3), GREEDY, 40, ignore_eos=True))
    engine.close()
    row = seen[0][0]
    assert speculation._record(row).acceptance[own] != own.trust
    speculation.renew()
    acceptance = speculation._record(row).acceptance
    assert acceptance == {own: own.trust}
    del acceptance[own]  # it has failed
    speculation.renew()
    assert not speculation._record(row).acceptance
