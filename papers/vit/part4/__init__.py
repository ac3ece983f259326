"""What the scripts of part 4 stand on, one file per subject."""
