"""Tiny random models around a chat template, with the markers that it names as their tokenizers have them."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from pathlib import Path

from tests.tiny import CONFIGS, CORPUS

_SPECIAL = re.compile(
    r"<\|[^|>\s'\"{}]{1,40}\|?>"  # <|im_start|>, and Gemma 4's <|tool_call>
    r"|<[a-z_]{2,30}\|>"  # its <tool_call|>
    r"|<\|\"\|>"
    r"|<｜[^｜\s]{1,40}｜>|｜DSML｜"
    r"|\[/?(?:[A-Z]+_)*[A-Z]{3,30}\]"  # Mistral's
    r"|<SPECIAL_\d+>|<extra_id_\d+>"
    r"|</?(?:s|sep|seed:[be]os|start_of_turn|end_of_turn|escape|(?:start|end)_function_(?:call|response|declaration))>"
    r"|\]<\]minimax\[>\[|\]~!?b\[|\]~b\]|\[e~\["
)
_PLAIN = re.compile(r"</?(?:think|tool_call|tool_response|arg_key|arg_value|mm:think|minimax:tool_call|seed:\w+)>")
"""Added tokens that tokenizers do not drop as special ones. All other markers are text of several tokens."""

ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eot|>",
    "<end_of_turn>",
    "<turn|>",
    "<|end_of_msg|>",
    "<|return|>",
    "<|flush|>",
    "<|end|>",
    "<|eom|>",
    "<|END_OF_TURN_TOKEN|>",
    "<｜end▁of▁sentence｜>",
    "<seed:eos>",
    "<|eos|>",
    "<|assistant_end|>",
    "[e~[",
    "<|end_of_text|>",
    "<|endoftext|>",
    "</s>",
)
"""What ends a turn; the first that a template names ends it, and else the last of these."""

START = "<s>"
CONTEXT = 65536


def markers(template: str) -> tuple[list[str], list[str]]:
    """The markers that a template names: those that are special tokens, and those that are added ones."""
    special, plain = (list(dict.fromkeys(form.findall(template))) for form in (_SPECIAL, _PLAIN))
    return special, plain


def ending(template: str) -> str:
    """What ends a turn."""
    special, _ = markers(template)
    return next((marker for marker in ENDS if marker in special), ENDS[-1])


def make_tokenizer(folder: Path, template: str) -> dict[str, int]:
    """Save a tokenizer of bytes and frequent words; returns the ids of its tokens."""
    from tokenizers import AddedToken, Tokenizer

    special, plain = markers(template)
    tokenizer = Tokenizer.from_str(_trained())
    wanted = dict.fromkeys([START, ending(template), *special])
    tokenizer.add_special_tokens([AddedToken(marker, special=True, normalized=False) for marker in wanted])
    tokenizer.add_tokens([AddedToken(marker, normalized=False) for marker in plain if marker not in wanted])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": START,
        "eos_token": ending(template),
        "model_max_length": CONTEXT,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return dict(tokenizer.get_vocab())


@functools.cache
def _trained() -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
    return str(tokenizer.to_str())


def make_model(template: str) -> Path:
    """Save a random model of one small layer with this chat template. Returns its folder."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.models import llama

    folder = Path(tempfile.mkdtemp(prefix="localai_shim-template-"))
    ids = make_tokenizer(folder, template)
    config = {
        **CONFIGS["llama"],
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "intermediate_size": 64,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": max(ids.values()) + 1,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        "eos_token_id": ids[ending(template)],
    }
    (folder / "config.json").write_text(json.dumps(config))
    mx.random.seed(1)
    weights = dict(tree_flatten(llama.Model(llama.ModelArgs.from_dict(config)).parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return folder
