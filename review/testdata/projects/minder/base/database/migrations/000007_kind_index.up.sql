CREATE INDEX CONCURRENTLY IF NOT EXISTS vehicles_kind_idx ON vehicles (kind);
