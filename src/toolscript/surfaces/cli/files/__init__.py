"""Files and folders as the command line reads them."""
