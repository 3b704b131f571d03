"""Teams of language models and the learners that improve them from preferences between joint responses."""
