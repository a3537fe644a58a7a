"""One module per source of images."""
