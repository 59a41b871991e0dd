"""The import job, put together from io/ and a pipeline. What another pipeline could use belongs in io/."""
