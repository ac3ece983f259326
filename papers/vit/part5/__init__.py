"""What the scripts of Part 5 stand on: `architectures` and `claims`, and `compute` for section 4.4."""
