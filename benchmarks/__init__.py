"""What the client costs, as ratios to the bare model step measured in the same run."""

from localai_shim.runtime.host import connect

connect()  # parts of the engine are measured without a client
