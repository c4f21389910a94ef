"""How long ranks wait for each other between the steps of a run, in seconds."""

#: Set-up steps other than connecting are short; a rank that is this late hangs.
SETUP_PATIENCE_S = 60.0
#: Rank 0 goes through all rows for the footer, and for who is slow; of many ranks that takes long.
FOOTER_PATIENCE_S = 600.0
