"""Reading files: text, Markdown, HTML, PDF, DOCX and EPUB become books with chapters, sections and pages."""
