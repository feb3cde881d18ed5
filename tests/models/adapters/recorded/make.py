"""`python make.py`, with torch, transformers and peft: a tiny model, PEFT's adapters around it, and its logits."""

import json
from pathlib import Path
from typing import Any

import peft  # type: ignore[import-not-found, unused-ignore]
import torch  # type: ignore[import-not-found, unused-ignore]
import transformers

HERE = Path(__file__).parent
TOKENS = [[5, 9, 17, 33, 2, 40], [40, 3, 21, 8, 60, 1], [11, 12, 13, 14, 15, 16]]
PROMPT, MAX_TOKENS = TOKENS[0], 12
PRODUCTS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS: dict[str, dict[str, Any]] = {
    "plain": {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]},
    "rslora": {"r": 3, "lora_alpha": 6, "use_rslora": True, "target_modules": PRODUCTS},
    "patterns": {
        "r": 2,
        "lora_alpha": 4,
        "target_modules": PRODUCTS,
        "rank_pattern": {"down_proj": 5, r"layers\.1\.self_attn\.q_proj": 3},
        "alpha_pattern": {"down_proj": 20, "layers.0.mlp.up_proj": 1},
    },
}


def main() -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=400, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=True, eos_token_id=127,
        bos_token_id=126,
    )  # fmt: skip
    base = transformers.LlamaForCausalLM(config).float().eval()
    for parameter in base.parameters():
        parameter.data = torch.randn_like(parameter) * 0.2 + (parameter.dim() == 1)
    base.save_pretrained(HERE / "base")
    (HERE / "base" / "generation_config.json").unlink()
    said: dict[str, Any] = {"base": answers(base)}
    for seed, (name, how) in enumerate(ADAPTERS.items()):
        torch.manual_seed(seed)
        fresh = transformers.LlamaForCausalLM.from_pretrained(HERE / "base").float().eval()
        adapted = peft.get_peft_model(fresh, peft.LoraConfig(task_type="CAUSAL_LM", **how)).eval()
        for key, parameter in adapted.named_parameters():
            if "lora_" in key:
                parameter.data = torch.randn_like(parameter) * 0.3
        adapted.save_pretrained(HERE / name)
        (HERE / name / "README.md").unlink(missing_ok=True)
        written = HERE / name / "adapter_config.json"
        written.write_text(json.dumps({**json.loads(written.read_text()), "base_model_name_or_path": "base"}) + "\n")
        said[name] = answers(adapted)
    versions = {module.__name__: module.__version__ for module in (peft, torch, transformers)}
    made = {"versions": versions, "tokens": TOKENS, "prompt": PROMPT, "adapters": said}
    (HERE / "said.json").write_text(json.dumps(made) + "\n")


@torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
def answers(model: Any) -> dict[str, Any]:
    """Logits after the last token of each row, and the greedy continuation of a prompt."""
    logits = model(torch.tensor(TOKENS)).logits[:, -1]
    tokens = list(PROMPT)
    for _ in range(MAX_TOKENS):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return {"logits": [[round(x, 5) for x in row] for row in logits.tolist()], "greedy": tokens[len(PROMPT) :]}


if __name__ == "__main__":
    main()
