"""What the scripts of part 4 stand on, one file a subject."""
