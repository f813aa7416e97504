"""The console: a page in the browser that shows what agents see. Its only source of data is the HTTP interface."""
