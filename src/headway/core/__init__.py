"""The engine as a plain object: events in, commands out.

No clock, thread, event loop, file or randomness: `now` is an argument. Reading order:
block, frontier, gate, window, batch, ticket, meter, spec, plan, stage, settle, flow, engine.
"""
