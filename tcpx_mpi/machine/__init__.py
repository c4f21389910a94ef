"""What a machine has, and who goes where on it: topology, GPUs, profiles, placement."""
