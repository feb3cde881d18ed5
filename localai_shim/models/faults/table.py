"""Architectures of mlx-lm whose code computes something else than the model's authors, and what mends it.

Each row was found by `make test-reference`, which compares logits with transformers'. A row applies only to the source
that it was written for.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mlx import nn

from ...backends.patches import class_like, fingerprint
from ...types import Json, ModelLoadError
from . import layers, tensors
from .tensors import Sanitize

log = logging.getLogger("localai_shim")


class Fault(NamedTuple):
    """Something that mlx-lm computes wrong, or cannot read.

    Attributes:
        what: the difference.
        issue: upstream's, with its number.
        sources: functions of the module, or of another one (`module:name`), whose `fingerprint` has to be this one.
        mend: changes a new model's layers; gets its config.
        sanitize: makes another `sanitize` of the model's.
        refuse: says why a model with this config cannot be served; empty if it can be.
    """

    what: str
    issue: str
    sources: Mapping[str, str]
    mend: Callable[[nn.Module, Json], object] = lambda model, config: None
    sanitize: Callable[[Sanitize], Sanitize] = lambda upstream: upstream
    refuse: Callable[[Json], str] = lambda config: ""


def corrected(
    kind: type[nn.Module], config: Json, table: Mapping[str, tuple[Fault, ...]] | None = None
) -> type[nn.Module]:
    """A model's class, or a subclass that computes and reads what upstream's does not.

    Args:
        kind: upstream's class.
        config: of the model.
        table: faults by module; defaults to mlx-lm's.

    Raises:
        ModelLoadError: upstream's code computes something else, and nothing mends that.
    """
    known = (FAULTS if table is None else table).get(kind.__module__, ())
    faults = [each for each in known if is_known(kind.__module__, each)]
    for fault in faults:
        if reason := fault.refuse(config):
            raise ModelLoadError(reason)
    if not faults:
        return kind

    def create(self: nn.Module, *args: object, **kwargs: object) -> None:
        kind.__init__(self, *args, **kwargs)
        for fault in faults:
            fault.mend(self, config)

    sanitize = getattr(kind, "sanitize", lambda self, weights: weights)
    if isinstance(static := inspect.getattr_static(kind, "sanitize", None), staticmethod):
        sanitize = _method(static.__func__)
    for fault in faults:
        sanitize = fault.sanitize(sanitize)
    return class_like(kind, {"__init__": create, "sanitize": sanitize})


def _method(function: Callable[[tensors.Weights], tensors.Weights]) -> Sanitize:
    def sanitize(self: nn.Module, weights: tensors.Weights) -> tensors.Weights:
        return function(weights)

    return sanitize


def is_known(module: str, fault: Fault) -> bool:
    """True if upstream's code is what a fault was found in."""
    for name, source in fault.sources.items():
        found = fingerprint(_found(module, name))
        if found != source:
            log.info("%s: %s is used as upstream has it: its source is another (%s)", module, name, found)
            return False
    return True


def _found(module: str, name: str) -> Any:
    """A function of a module, or of a module next to it that is named before a colon."""
    other, _, path = name.rpartition(":")
    place: Any = importlib.import_module(f"mlx_lm.models.{other}" if other and "." not in other else other or module)
    for part in path.split("."):
        place = getattr(place, part, None)
    return place


def _heads_apart(config: Json) -> str:
    if config.get("multi_query", True):
        return ""
    return (
        "config.json: multi_query is false, and mlx-lm reads the weights of its attention in another order. Choose "
        "another model: its answers would be wrong."
    )


_NOT_REPORTED = "not reported"

FAULTS: dict[str, tuple[Fault, ...]] = {
    f"mlx_lm.models.{name}": faults
    for name, faults in {
        "ernie4_5_moe": (
            Fault(
                "experts are chosen without e_score_correction_bias",
                "vllm-project/vllm#21586 (the same fault in vLLM)",
                {"Ernie4_5_MoeMLP.__call__": "05cbd2b7f59c", "Model.sanitize": "1a0c867bd5bd"},
                mend=layers.correct_scores,
                sanitize=tensors.keep_biases,
            ),
        ),
        "falcon_h1": (
            Fault(
                "keys without key_multiplier, and values without attention_in_multiplier",
                _NOT_REPORTED,
                {"Model.sanitize": "0237ca1d0bd5"},
                sanitize=tensors.multiply_keys,
            ),
            Fault(
                "one norm for all groups of a Mamba layer",
                "osaurus-ai/vmlx-swift#188 (the same fault in a port, which names mlx-lm's)",
                {"FalconH1RMSNormGated.__call__": "c13398a6124d"},
                mend=layers.falcon_norms,
            ),
        ),
        "gemma3n": (
            Fault(
                "layers that use another one's keys require weights that transformers 5 does not save",
                "vllm-project/vllm#54917 (the same fault in vLLM)",
                {"Model.sanitize": "23ee73861b54"},
                sanitize=tensors.fill_unused(tensors.SHARED_LAYERS),
            ),
        ),
        "llama4_text": (
            Fault(
                "transformers' name of the head is not read",
                _NOT_REPORTED,
                {},
                sanitize=tensors.rename({"lm_head.": "output."}),
            ),
            Fault(
                "keys and queries are normalized in layers without positions, too",
                _NOT_REPORTED,
                {"Attention.__call__": "ae4ce70bb071"},
                mend=layers.no_norms_without_positions,
            ),
        ),
        "gemma": (
            Fault(
                "the exact GELU, not that by tanh",
                "ml-explore/mlx-examples#1057",
                {"MLP.__call__": "3f9b9c7828ec"},
                mend=layers.use_gelu("gelu_pytorch_tanh", False),
            ),
        ),
        "gpt2": (
            Fault(
                "transformers' names of tensors are not read",
                _NOT_REPORTED,
                {"Model.sanitize": "85a04afd528d"},
                sanitize=tensors.rename(tensors.GPT2),
            ),
        ),
        "gpt_bigcode": (
            Fault(
                "the exact GELU, whatever activation_function says",
                _NOT_REPORTED,
                {"MLP.__call__": "728be96dcf5d"},
                mend=layers.use_gelu("gelu_pytorch_tanh"),
            ),
            Fault(
                "weights of multi_query=false are read in another order",
                _NOT_REPORTED,
                {"Attention.__call__": "285804808506"},
                refuse=_heads_apart,
            ),
        ),
        "gpt_neox": (
            Fault(
                "GELU by tanh, whatever hidden_act says",
                _NOT_REPORTED,
                {"MLP.__call__": "7861ec4f7ca2"},
                mend=layers.use_gelu("gelu"),
            ),
        ),
        "gpt_oss": (
            Fault(
                "experts that transformers saves in float are not read",
                "ml-explore/mlx-lm#1079",
                {"Model.sanitize": "f03a7ae202b9"},
                sanitize=tensors.transpose_experts,
            ),
        ),
        "granitemoehybrid": (
            Fault(
                "one norm for all groups of a Mamba layer",
                _NOT_REPORTED,
                {"GraniteMoeHybridRMSNormGated.__call__": "68dca54483b5"},
                mend=layers.group_norms("GraniteMoeHybridRMSNormGated", "mamba_n_groups"),
            ),
        ),
        "jamba": (
            Fault(
                "the probabilities of the chosen experts are made to sum up to 1",
                _NOT_REPORTED,
                {"JambaSparseMoeBlock.__call__": "b0e4da2bc9e2"},
                mend=layers.sum_all_experts,
            ),
        ),
        "kimi_linear": (
            Fault(
                "transformers' names of dense layers are not read",
                _NOT_REPORTED,
                {"Model.sanitize": "f550c74e56c1"},
                sanitize=tensors.rename(tensors.KIMI_LINEAR),
            ),
        ),
        "longcat_flash": (
            Fault(
                "weights of experts that compute nothing are no part of the model",
                _NOT_REPORTED,
                {"Model.sanitize": "3b6a1c1f3a32"},
                sanitize=tensors.drop_zero_experts,
            ),
        ),
        "mamba2": (
            Fault(
                "one norm for all groups of a layer",
                _NOT_REPORTED,
                {"MambaRMSNormGated.__call__": "68dca54483b5"},
                mend=layers.group_norms("MambaRMSNormGated", "n_groups"),
            ),
            Fault(
                "norms of layers do not use layer_norm_epsilon",
                _NOT_REPORTED,
                {"ResidualBlock.__init__": "868a78a3d916"},
                mend=layers.set_epsilon,
            ),
        ),
        "minicpm3": (
            Fault(
                "logits of a tied head are not scaled by dim_model_base",
                _NOT_REPORTED,
                {"Model.__call__": "6e0e2de0b6d8"},
                mend=layers.scale_tied_logits,
            ),
        ),
        "nanochat": (
            Fault(
                "transformers' names of tensors are not read",
                _NOT_REPORTED,
                {},
                sanitize=tensors.rename(tensors.NANOCHAT),
            ),
        ),
        "olmo_hybrid": (
            Fault(
                "transformers' names of norms are not read",
                _NOT_REPORTED,
                {"Model.sanitize": "fea7aadda37d"},
                sanitize=tensors.rename(tensors.OLMO_HYBRID),
            ),
        ),
        "phi3small": (
            Fault(
                "other layers are sparse, unless every second one is; heads of one pattern are not read",
                _NOT_REPORTED,
                {"Attention.__init__": "aad0aed31828"},
                mend=layers.choose_sparse_layers,
            ),
        ),
        "starcoder2": (
            Fault(
                "the exact GELU, whatever hidden_act says",
                _NOT_REPORTED,
                {"MLP.__call__": "2ff6ea271cac"},
                mend=layers.use_gelu("gelu_pytorch_tanh"),
            ),
        ),
    }.items()
}
"""By the module that defines the model."""
