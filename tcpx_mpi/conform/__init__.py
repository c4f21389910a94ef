"""Whether a plugin keeps the contract of its ABI version, clause by clause."""
