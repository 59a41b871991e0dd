"""Sources and sinks, one file per format or database. What does not belong here: jobs, stages, order."""
