"""Lines of a batch's input file, answered by all replicas."""

from ..scale.ray.batch_lines import answer_lines

__all__ = ["answer_lines"]
