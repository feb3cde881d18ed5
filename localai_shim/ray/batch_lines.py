"""Lines of a batch's input file, answered by all replicas."""

from ..scale.ray.client import answer_lines

__all__ = ["answer_lines"]
