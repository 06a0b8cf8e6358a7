"""evotune: search algorithms for kernel auto-tuning that are written by a generator and selected by evolution."""
