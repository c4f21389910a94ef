"""What NIXL's Python before 1.4 names of torch (2 GB), in signatures and questions of type."""


class Tensor:
    """Of which these tests make none."""
