"""Models of mlx-vlm: tokens and logits are those of `mlx_vlm.generate_step` alone, with mlx-vlm's own processor."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.models.vision.model import VisionModel
from tests import inside
from tests.models.vision.seeing import (
    STATE,
    WHOLE,
    compare,
    generate,
    load,
    pictures,
    poison,
    prepared,
    prompt_of,
    rendered,
)
from tests.samples import only
from tests.vision import FAMILIES, families, picture

# Kimi-VL's processor asks Pillow for what it will drop.
pytestmark = pytest.mark.filterwarnings("ignore:Image.Image.getdata:DeprecationWarning")


@pytest.fixture(scope="module", params=families())
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(kind: str) -> Iterator[VisionModel]:
    made = load(kind)
    poison(made)
    yield made
    # Nothing of a request is read from the model, or left on it.
    assert all(getattr(made._language, name, "poison") == "poison" for name in STATE)


@pytest.mark.parametrize("images", only([0, 3], [0, 1, 3]))
def test_tokens_and_logits_are_those_of_mlx_vlm_alone(model: VisionModel, kind: str, images: int) -> None:
    media = pictures(min(images, FAMILIES[kind].images))
    compare(model, media, prepared(kind, rendered(model, kind, len(media)), media))


@pytest.mark.parametrize("images", [1, 3])
def test_a_picture_alone_has_the_features_that_it_has_in_a_prompt(model: VisionModel, kind: str, images: int) -> None:
    media = pictures(min(images, FAMILIES[kind].images))
    items = [model.text.process(item) for item in media]
    places = np.concatenate([span.places for span in prompt_of(model, items).media])
    poison(model, None)
    whole = inside.network(model).get_input_embeddings(**prepared(kind, rendered(model, kind, len(media)), media))
    poison(model)
    features = [model.embed(item) for item in items]
    rows = np.concatenate([np.array(each.rows) for each in features])
    # A product of more rows may be rounded otherwise.
    equal = np.testing.assert_array_equal if images == 1 else partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)
    equal(rows, np.array(whole.inputs_embeds[0, mx.array(places)]))
    for i, layer in enumerate(whole.deepstack_visual_embeds or ()):
        equal(np.concatenate([np.array(each.deep[i]) for each in features]), np.array(layer))


def test_what_is_shown_matters(model: VisionModel) -> None:
    first, second = (model.text.process(picture(60, 80, seed=seed)) for seed in (1, 2))
    assert first.digest != second.digest
    assert model.text.process(picture(60, 80, seed=1)).digest == first.digest
    logits = [generate(model, prompt_of(model, [item]), [model.embed(item)], WHOLE)[0][1] for item in (first, second)]
    assert not np.allclose(*logits, atol=1e-3)
