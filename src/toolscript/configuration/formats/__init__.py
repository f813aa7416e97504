"""One reader and writer for each format in which clients keep their servers. Writers edit the text: whatever is not
edited stays as it is, with its comments and its order."""
