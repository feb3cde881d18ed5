"""Everything here is compared in one thread, on the CPU."""

from __future__ import annotations

import sys
from types import ModuleType

# timm imports torchvision, whose operators it does not need: those of a wheel for another torch are missing.
_UNUSED = "torchvision._meta_registrations"
sys.modules[_UNUSED] = ModuleType(_UNUSED)

import transformers  # noqa: E402

from localai_shim.runtime.host import connect  # noqa: E402

connect()
transformers.logging.set_verbosity_error()
