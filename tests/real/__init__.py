"""Tests with parts of real models, which `make test-templates` brings; see `tests/real/conftest.py`."""
