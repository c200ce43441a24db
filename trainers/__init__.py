"""Built-in trainers, one folder each."""
