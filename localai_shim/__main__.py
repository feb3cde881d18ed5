"""`python -m localai_shim`, which is the same as the command `localai-shim`."""

from .cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
