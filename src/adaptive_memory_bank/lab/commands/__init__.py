"""One module per `amb` command: parse, call one function, print."""
