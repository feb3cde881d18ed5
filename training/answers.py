"""Greedy answers of the model in torch, many prompts at once."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from training.network import Network, turned


class Cache:
    """Keys and values of all layers, and how many places of each prompt count."""

    def __init__(self, network: Network, rows: int, length: int, device: torch.device) -> None:
        shape = network.shape
        size = (shape.layers, rows, shape.kv_heads, length, shape.head)
        self.keys, self.values = torch.zeros(size, device=device), torch.zeros(size, device=device)


def run(network: Network, tokens: Tensor, positions: Tensor, cache: Cache) -> Tensor:
    """Hidden states of (rows, tokens), each at its position, seen from there back."""
    shape = network.shape
    rows, count = tokens.shape
    hidden = F.embedding(tokens, network.embedding)
    flat = positions.reshape(-1)
    cosine, sine = network.rotations(flat)
    places = torch.arange(cache.keys.shape[3], device=tokens.device)
    mask = places <= positions[:, None, :, None]
    index = torch.arange(rows, device=tokens.device)[:, None]
    for layer in range(shape.layers):
        x = F.rms_norm(hidden, (shape.width,), network.norms[layer][0], shape.epsilon)
        q = F.linear(x, network.query[layer]).view(-1, shape.heads, shape.head)
        k = F.linear(x, network.key[layer]).view(-1, shape.kv_heads, shape.head)
        v = F.linear(x, network.value[layer]).view(rows, count, shape.kv_heads, shape.head)
        scales = network.head_norms[layer]
        q = turned(F.rms_norm(q, (shape.head,), scales[0], shape.epsilon), cosine, sine)
        k = turned(F.rms_norm(k, (shape.head,), scales[1], shape.epsilon), cosine, sine)
        keys, values = cache.keys[layer], cache.values[layer]
        keys[index, :, positions] = k.view(rows, count, shape.kv_heads, shape.head)
        values[index, :, positions] = v
        groups = shape.heads // shape.kv_heads
        mixed = F.scaled_dot_product_attention(
            q.view(rows, count, shape.heads, shape.head).transpose(1, 2),
            keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1), attn_mask=mask,
        )  # fmt: skip
        hidden = hidden + F.linear(mixed.transpose(1, 2).reshape(rows, count, -1), network.output[layer])
        x = F.rms_norm(hidden, (shape.width,), network.norms[layer][1], shape.epsilon)
        inner = F.silu(F.linear(x, network.gate[layer])) * F.linear(x, network.up[layer])
        hidden = hidden + F.linear(inner, network.down[layer])
    return F.rms_norm(hidden, (shape.width,), network.last_norm, shape.epsilon)


@torch.no_grad()
def answers(network: Network, prompts: Sequence[Sequence[int]], ends: Sequence[int], most: int) -> list[list[int]]:
    """The token ids that follow each prompt, without the one that ends it."""
    device = network.embedding.device
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    longest = int(lengths.max())
    tokens = torch.zeros(len(prompts), longest, dtype=torch.int64, device=device)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = torch.tensor(prompt, device=device)
    cache = Cache(network, len(prompts), longest + most, device)
    positions = torch.arange(longest, device=device).expand(len(prompts), -1)
    hidden = run(network, tokens, positions, cache)
    last = hidden[torch.arange(len(prompts), device=device), lengths - 1]
    made: list[Tensor] = []
    finished = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    final = torch.tensor(ends, device=device)
    for step in range(most):
        chosen = F.linear(last, network.embedding).argmax(-1)
        made.append(chosen)
        finished |= torch.isin(chosen, final)
        if step + 1 == most or (step % 8 == 7 and bool(finished.all())):
            break
        last = run(network, chosen[:, None], (lengths + step)[:, None], cache)[:, 0]
    rows = torch.stack(made, 1).tolist()
    return [row[: next((at for at, one in enumerate(row) if one in ends), len(row))] for row in rows]
