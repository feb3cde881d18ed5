"""Everything on at once: faults, pairs of them, ends of processes, made-up bodies, and a soak."""
