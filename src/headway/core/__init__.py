"""The engine as a plain object. Read: block, frontier, gate, window, batch, ticket, meter, spec, plan, stage, engine."""
