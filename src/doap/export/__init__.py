"""doap inside other people's tools."""
