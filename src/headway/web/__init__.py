"""The page: live runs, finished reports and the visualizer over HTTP. Starlette and uvicorn are imported on first use."""
