"""Linear algebra that keeps its digits: vectors of four, ridge inverses as factors, batches."""
