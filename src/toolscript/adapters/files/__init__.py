"""Reading files of many kinds as books with chapters, sections and pages."""
