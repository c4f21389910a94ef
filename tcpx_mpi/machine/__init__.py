"""A machine and the places of ranks on it: topology, GPUs, profiles, placement."""
