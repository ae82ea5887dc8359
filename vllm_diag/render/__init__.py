"""A report to text: for a terminal, for Markdown. Nothing is computed here."""
