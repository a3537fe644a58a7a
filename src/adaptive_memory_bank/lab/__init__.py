"""What people run: data, trainers, comparisons, the command `amb`. Imports the library, never the reverse."""
