-- The columns of a limit l.
l.namespace,
l.name,
l.units,
coalesce(l.window_ms, 0)::bigint AS window_ms,
l.when_full,
l.declared_units,
coalesce(l.declared_window_ms, 0)::bigint AS declared_window_ms,
coalesce(l.set_at_ms, 0)::bigint AS set_at_ms,
l.changed_at_ms
