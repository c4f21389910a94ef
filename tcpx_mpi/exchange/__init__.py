"""Results as others read them: tidy tables, CSV and Parquet, frames, nccl-tests logs."""
