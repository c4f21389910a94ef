"""A rank's GPU: whether its memory can be used here, the memory itself, and how the GPU fared.

Only this room knows CuPy and NVML's Python binding, and both are imported only by runs in a GPU's
memory.
"""
