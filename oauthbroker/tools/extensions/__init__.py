"""Extensions: the middleware pipelines that they register in."""
