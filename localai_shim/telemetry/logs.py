"""Level and handler of the logger "localai_shim", as `LOCALAI_SHIM_LOG` asks for them."""

from __future__ import annotations

import logging
import os
import sys

from ..types import log

VARIABLE = "LOCALAI_SHIM_LOG"
LEVELS = ("debug", "info", "warning", "error")


def follow_environment() -> None:
    """Set the logger's level to what `LOCALAI_SHIM_LOG` says, and have its lines on stderr if nothing takes them yet.

    Called when a client is made: importing the package changes nothing of the program's logging.
    """
    wanted = os.environ.get(VARIABLE, "").strip().lower()
    if not wanted:
        return
    if wanted not in LEVELS:
        log.warning("%s must be one of %s, not '%s': it has no effect", VARIABLE, ", ".join(LEVELS), wanted)
        return
    log.setLevel(wanted.upper())
    if not log.hasHandlers() and sys.stderr is not None:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        log.addHandler(handler)
