"""Two texts on one source, judged together: summaries of a post, sections around an abstract."""
