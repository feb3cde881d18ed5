"""YaRN with `truncate: false`, as gpt-oss has it, rotates as transformers' formula says."""

from __future__ import annotations

import copy
import importlib
import logging
import math
from typing import Any

import numpy as np
import pytest

from localai_shim.models.config.rope_variants import set_untruncated
from localai_shim.models.config.translation import translated
from tests.architectures import config_of
from tests.saved_configs import Config

YARN: Config = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 4096,
}
SIZE, THETA = 64, 150000.0


def inverse_frequencies(truncate: bool) -> Any:
    """Angles of each pair by the YaRN paper, as transformers computes them."""

    def correction(rotations: float) -> float:
        return SIZE * math.log(4096 / (rotations * 2 * math.pi)) / (2 * math.log(THETA))

    low, high = correction(32.0), correction(1.0)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    ramp = np.clip((np.arange(SIZE // 2) - max(low, 0)) / (min(high, SIZE - 1) - max(low, 0)), 0, 1)
    plain = 1.0 / THETA ** (np.arange(0, SIZE, 2) / SIZE)
    return plain / 32.0 * ramp + plain * (1 - ramp)


def made(**scaling: Any) -> tuple[Any, Config]:
    module = importlib.import_module("mlx_lm.models.gpt_oss")
    config = {**copy.deepcopy(config_of("gpt_oss")), "model_type": "gpt_oss", "head_dim": SIZE, "rope_theta": THETA}
    config.pop("rope_parameters")
    config = translated({**config, "rope_scaling": {**YARN, **scaling}}, module)
    return module.Model(module.ModelArgs.from_dict(copy.deepcopy(config))), config


def angles(model: Any) -> Any:
    [one, *others] = [np.array(layer._freqs) for layer in model.modules() if type(layer).__name__ == "YarnRoPE"]
    assert all(np.array_equal(one, other) for other in others)
    return 1 / one


@pytest.mark.parametrize(
    ("scaling", "truncate"), [({}, True), ({"truncate": True}, True), ({"truncate": False}, False)]
)
def test_the_bounds_of_the_ramp_are_as_the_config_says(scaling: Config, truncate: bool) -> None:
    model, config = made(**scaling)
    assert not np.allclose(inverse_frequencies(False), inverse_frequencies(True), rtol=1e-2)
    set_untruncated(model, config)
    assert np.allclose(angles(model), inverse_frequencies(truncate), rtol=1e-4)


def test_a_model_without_such_layers_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    module: Any = importlib.import_module("mlx_lm.models.qwen3_moe")
    model = module.Model(module.ModelArgs.from_dict(copy.deepcopy(config_of("qwen3_moe"))))
    with caplog.at_level(logging.WARNING, "localai_shim"):
        set_untruncated(model, {"rope_theta": THETA, "rope_scaling": {**YARN, "truncate": False}})
    assert "'truncate' of the RoPE scaling is false" in caplog.text
