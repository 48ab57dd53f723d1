-- migrate:up
ALTER TABLE reading DETACH PARTITION reading_2025;

-- migrate:down
ALTER TABLE reading ATTACH PARTITION reading_2025 FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
