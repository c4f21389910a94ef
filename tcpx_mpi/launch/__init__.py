"""Starting ranks: mpirun as our child, and the MPI library that it belongs to."""
