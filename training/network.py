"""The model in torch: Qwen3's architecture over dialogues that stand one behind the other in one line."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """The sizes of the model: 5.9 million parameters at a vocabulary of 4,096.

    Heads are 64 wide because the attention kernels of real models, on Metal and CUDA, exist for that width.
    """

    vocabulary: int = 4096
    width: int = 256
    layers: int = 8
    inner: int = 448
    heads: int = 6
    kv_heads: int = 2
    head: int = 64
    theta: float = 10_000.0
    epsilon: float = 1e-6


Attention = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]


def flash_attention(query: Tensor, key: Tensor, value: Tensor, starts: Tensor, longest: int) -> Tensor:
    """Causal attention within each dialogue; ``starts`` are its places, and the end."""
    made: Tensor = torch.ops.aten._flash_attention_forward(
        query, key, value, starts, starts, longest, longest, 0.0, True, False
    )[0]
    return made


def plain_attention(query: Tensor, key: Tensor, value: Tensor, starts: Tensor, longest: int) -> Tensor:
    """Causal attention one dialogue after another, for a CPU."""
    made = []
    places = starts.tolist()
    for start, end in pairwise(places):
        q, k, v = (one[start:end].transpose(0, 1).unsqueeze(0) for one in (query, key, value))
        made.append(F.scaled_dot_product_attention(q, k, v, is_causal=True)[0].transpose(0, 1))
    return torch.cat(made)


def padded_attention(query: Tensor, key: Tensor, value: Tensor, starts: Tensor, longest: int) -> Tensor:
    """Causal attention in rows of one dialogue each, padded to the longest."""
    sizes = (starts[1:] - starts[:-1])[:, None]
    columns = torch.arange(longest, device=query.device)[None]
    inside = columns < sizes
    places = torch.where(inside, starts[:-1, None] + columns, 0)
    q, k, v = (one[places].transpose(1, 2) for one in (query, key, value))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)[inside]


def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Heads with their positions: rotary embedding of the two halves."""
    left, right = x.float().chunk(2, dim=-1)
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine), dim=-1).to(x.dtype)


class Network(nn.Module):
    """The weights, those of all layers in one tensor of each kind, and what is computed between attentions."""

    def __init__(self, shape: Shape, seed: int) -> None:
        super().__init__()
        self.shape = shape
        self.attend: Attention = plain_attention
        source = torch.Generator().manual_seed(seed)
        layers, width, inner = shape.layers, shape.width, shape.inner

        def normal(*sizes: int, deviation: float = 0.02) -> nn.Parameter:
            return nn.Parameter(torch.randn(*sizes, generator=source) * deviation)

        queries, keys = shape.heads * shape.head, shape.kv_heads * shape.head
        last = 0.02 / math.sqrt(2 * layers)
        self.embedding = normal(shape.vocabulary, width)
        self.query = normal(layers, queries, width)
        self.key = normal(layers, keys, width)
        self.value = normal(layers, keys, width)
        self.output = normal(layers, width, queries, deviation=last)
        self.gate = normal(layers, inner, width)
        self.up = normal(layers, inner, width)
        self.down = normal(layers, width, inner, deviation=last)
        self.norms = nn.Parameter(torch.ones(layers, 2, width))
        self.head_norms = nn.Parameter(torch.ones(layers, 2, shape.head))
        self.last_norm = nn.Parameter(torch.ones(width))
        self.before = before
        self.after = after

    def matrices(self) -> list[nn.Parameter]:
        """The weights that multiply, without the embedding."""
        return [self.query, self.key, self.value, self.output, self.gate, self.up, self.down]

    def rotations(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the positions, (tokens, 1, half a head)."""
        half = self.shape.head // 2
        powers = torch.arange(half, device=positions.device, dtype=torch.float32) / half
        angles = positions.float()[:, None] / self.shape.theta**powers
        return angles.cos()[:, None], angles.sin()[:, None]

    def forward(self, tokens: Tensor, starts: Tensor, positions: Tensor, longest: int) -> Tensor:
        """Hidden states, (tokens, width), before the head."""
        kind = torch.bfloat16 if tokens.is_cuda else torch.float32
        shape, (cosine, sine) = self.shape, self.rotations(positions)
        hidden = F.embedding(tokens, self.embedding).to(kind)
        stacks = [weight.to(kind).unbind(0) for weight in self.matrices()]
        norms, head_norms = self.norms.unbind(0), self.head_norms.unbind(0)
        for layer in range(shape.layers):
            query, key, value, output, gate, up, down = (stack[layer] for stack in stacks)
            q, k, v = self.before(hidden, norms[layer][0], head_norms[layer], query, key, value, cosine, sine, shape)
            mixed = self.attend(q, k, v, starts, longest)
            hidden = self.after(
                hidden, mixed.reshape(mixed.shape[0], -1), norms[layer][1], output, gate, up, down, shape
            )
        return F.rms_norm(hidden, (shape.width,), self.last_norm.to(kind), shape.epsilon)


def before(
    hidden: Tensor, norm: Tensor, head_norms: Tensor, query: Tensor, key: Tensor, value: Tensor, cosine: Tensor,
    sine: Tensor, shape: Shape,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Queries, keys and values, (tokens, heads, head), of one layer."""
    x = F.rms_norm(hidden, (shape.width,), norm.to(hidden.dtype), shape.epsilon)
    q = F.linear(x, query).view(-1, shape.heads, shape.head)
    k = F.linear(x, key).view(-1, shape.kv_heads, shape.head)
    v = F.linear(x, value).view(-1, shape.kv_heads, shape.head)
    scales = head_norms.to(hidden.dtype)
    q = turned(F.rms_norm(q, (shape.head,), scales[0], shape.epsilon), cosine, sine)
    k = turned(F.rms_norm(k, (shape.head,), scales[1], shape.epsilon), cosine, sine)
    # Every head has keys of its own here: the kernel for dialogues in one line then needs no groups.
    groups = shape.heads // shape.kv_heads
    return q, k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)


def after(
    hidden: Tensor, mixed: Tensor, norm: Tensor, output: Tensor, gate: Tensor, up: Tensor, down: Tensor, shape: Shape
) -> Tensor:
    """The residual stream behind one layer."""
    hidden = hidden + F.linear(mixed, output)
    x = F.rms_norm(hidden, (shape.width,), norm.to(hidden.dtype), shape.epsilon)
    return hidden + F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def loss_of(hidden: Tensor, embedding: Tensor, wanted: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of the cross entropies, in nats, of the wanted tokens."""
    logits = F.linear(hidden, embedding.to(hidden.dtype)).float()
    return (F.cross_entropy(logits, wanted, ignore_index=-100, reduction="none") * weights).sum()
