"""Files that recordings and results live in, one module a format."""
