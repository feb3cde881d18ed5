"""The model in torch: SmolVLM's architecture, a tower of patches, a connector, and a language model like Llama's."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """The sizes of the model: 3.9 million parameters; heads are 64 wide, as kernels of attention want it."""

    vocabulary: int
    image: int = 128
    patch: int = 8
    merge: int = 2
    width: int = 192
    heads: int = 3
    tower_layers: int = 6
    tower_inner: int = 480
    layers: int = 4
    kv_heads: int = 3
    inner: int = 320
    theta: float = 10_000.0
    tower_epsilon: float = 1e-6
    epsilon: float = 1e-5

    @property
    def head(self) -> int:
        """Width of a head."""
        return self.width // self.heads


class Network(nn.Module):
    """The weights, those of all layers in one tensor of each kind."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        source = torch.Generator().manual_seed(seed)

        def normal(*sizes: int, deviation: float = 0.02) -> nn.Parameter:
            return nn.Parameter(torch.randn(*sizes, generator=source) * deviation)

        def ones(*sizes: int) -> nn.Parameter:
            return nn.Parameter(torch.ones(*sizes))

        def zeros(*sizes: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(*sizes))

        n, w, inner = shape.tower_layers, shape.width, shape.tower_inner
        last = 0.02 / math.sqrt(2 * n)
        self.patches = normal(w, 3 * shape.patch**2)
        self.patch_bias = zeros(w)
        self.places = normal((shape.image // shape.patch) ** 2, w)
        self.tower_qkv, self.tower_qkv_bias = normal(n, 3, w, w), zeros(n, 3, w)
        self.tower_out, self.tower_out_bias = normal(n, w, w, deviation=last), zeros(n, w)
        self.tower_up, self.tower_up_bias = normal(n, inner, w), zeros(n, inner)
        self.tower_down, self.tower_down_bias = normal(n, w, inner, deviation=last), zeros(n, w)
        self.tower_norms, self.tower_shifts = ones(n, 2, w), zeros(n, 2, w)
        self.tower_last, self.tower_last_shift = ones(w), zeros(w)
        self.connector = normal(w, w * shape.merge**2)
        m, inner = shape.layers, shape.inner
        last = 0.02 / math.sqrt(2 * m)
        keys = shape.kv_heads * shape.head
        self.embedding, self.logits = normal(shape.vocabulary, w), normal(shape.vocabulary, w)
        self.query, self.key, self.value = normal(m, w, w), normal(m, keys, w), normal(m, keys, w)
        self.output = normal(m, w, w, deviation=last)
        self.gate, self.up = normal(m, inner, w), normal(m, inner, w)
        self.down = normal(m, w, inner, deviation=last)
        self.norms, self.last_norm = ones(m, 2, w), ones(w)
        self.tower_layer, self.layer = tower_layer, text_layer

    def matrices(self) -> list[nn.Parameter]:
        """The weights that multiply in the layers."""
        return [
            self.tower_qkv, self.tower_out, self.tower_up, self.tower_down,
            self.query, self.key, self.value, self.output, self.gate, self.up, self.down,
        ]  # fmt: skip

    def features(self, pixels: Tensor) -> Tensor:
        """Rows for the tokens of pictures, (pictures, tokens, width); pixels (pictures, 3, side, side) in -1 to 1."""
        s, kind = self.shape, pixels.dtype
        n, side = len(pixels), s.image // s.patch
        x = pixels.view(n, 3, side, s.patch, side, s.patch).permute(0, 2, 4, 1, 3, 5).reshape(n, side * side, -1)
        x = F.linear(x, self.patches.to(kind), self.patch_bias.to(kind)) + self.places.to(kind)
        weights = [
            self.tower_qkv, self.tower_qkv_bias, self.tower_out, self.tower_out_bias, self.tower_up,
            self.tower_up_bias, self.tower_down, self.tower_down_bias, self.tower_norms, self.tower_shifts,
        ]  # fmt: skip
        for layer in zip(*(one.to(kind).unbind(0) for one in weights), strict=True):
            x = self.tower_layer(x, s.heads, s.tower_epsilon, *layer)
        x = F.layer_norm(x, (s.width,), self.tower_last.to(kind), self.tower_last_shift.to(kind), s.tower_epsilon)
        merged, step = side // s.merge, s.merge
        x = x.view(n, merged, step, merged, step, s.width).permute(0, 1, 3, 2, 4, 5).reshape(n, merged**2, -1)
        return F.linear(x, self.connector.to(kind))

    def forward(self, ids: Tensor, features: Tensor, image: int) -> Tensor:
        """Hidden states, (rows, length, width); features (rows, tokens, width) stand where the ids are ``image``."""
        s, kind = self.shape, features.dtype
        seen = ids == image
        order = (seen.cumsum(1) - 1).clamp(0, features.shape[1] - 1)
        x = F.embedding(ids, self.embedding.to(kind))
        there = features.gather(1, order[..., None].expand(-1, -1, s.width))
        x = torch.where(seen[..., None], there, x)
        half = s.head // 2
        powers = torch.arange(half, device=ids.device, dtype=torch.float32) / half
        angles = torch.arange(ids.shape[1], device=ids.device)[:, None] / s.theta**powers
        cosine, sine = angles.cos(), angles.sin()
        weights = [self.query, self.key, self.value, self.output, self.gate, self.up, self.down, self.norms]
        for layer in zip(*(one.to(kind).unbind(0) for one in weights), strict=True):
            x = self.layer(x, s.heads, s.kv_heads, s.epsilon, cosine, sine, *layer)
        return F.rms_norm(x, (s.width,), self.last_norm.to(kind), s.epsilon)


def _heads(x: Tensor, heads: int) -> Tensor:
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def tower_layer(
    x: Tensor, heads: int, epsilon: float, qkv: Tensor, qkv_bias: Tensor, out: Tensor, out_bias: Tensor, up: Tensor,
    up_bias: Tensor, down: Tensor, down_bias: Tensor, norms: Tensor, shifts: Tensor,
) -> Tensor:  # fmt: skip
    """One layer of the tower: attention to all patches, and two products with GELU between them."""
    width = x.shape[-1]
    y = F.layer_norm(x, (width,), norms[0], shifts[0], epsilon)
    q, k, v = F.linear(y, qkv.flatten(0, 1), qkv_bias.flatten()).chunk(3, dim=-1)
    mixed = F.scaled_dot_product_attention(_heads(q, heads), _heads(k, heads), _heads(v, heads))
    x = x + F.linear(mixed.transpose(1, 2).flatten(2), out, out_bias)
    y = F.layer_norm(x, (width,), norms[1], shifts[1], epsilon)
    return x + F.linear(F.gelu(F.linear(y, up, up_bias)), down, down_bias)


def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Heads with their positions: rotary embedding of the two halves."""
    left, right = x.float().chunk(2, dim=-1)
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine), dim=-1).to(x.dtype)


def text_layer(
    x: Tensor, heads: int, kv_heads: int, epsilon: float, cosine: Tensor, sine: Tensor, query: Tensor, key: Tensor,
    value: Tensor, output: Tensor, gate: Tensor, up: Tensor, down: Tensor, norms: Tensor,
) -> Tensor:  # fmt: skip
    """One layer of the language model."""
    width = x.shape[-1]
    y = F.rms_norm(x, (width,), norms[0], epsilon)
    q, k = (turned(_heads(F.linear(y, w), n), cosine, sine) for w, n in ((query, heads), (key, kv_heads)))
    v = _heads(F.linear(y, value), kv_heads)
    k, v = (one.repeat_interleave(heads // kv_heads, dim=1) for one in (k, v))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + F.linear(mixed.transpose(1, 2).flatten(2), output)
    y = F.rms_norm(x, (width,), norms[1], epsilon)
    return x + F.linear(F.silu(F.linear(y, gate)) * F.linear(y, up), down)


def loss_of(hidden: Tensor, logits: Tensor, wanted: Tensor) -> Tensor:
    """Mean cross entropy in nats of the wanted tokens."""
    made = F.linear(hidden, logits.to(hidden.dtype)).float()
    return F.cross_entropy(made.flatten(0, 1), wanted.flatten(), ignore_index=-100)
