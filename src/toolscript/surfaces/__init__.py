"""Where people and programs come in: HTTP and the command line. Parse, call one service, render."""
