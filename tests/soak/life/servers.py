"""Servers that run beside a test."""

from __future__ import annotations

import os
import socket

from tests.scripts import ROOT

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def free_port() -> int:
    """Number of a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
