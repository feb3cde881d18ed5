"""Everything here is compared in one thread, on the CPU."""

from __future__ import annotations

import transformers

from localai_shim.runtime.host import connect

connect()
transformers.logging.set_verbosity_error()
