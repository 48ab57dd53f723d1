-- migrate:up
CREATE TABLE reading (at date NOT NULL, value int NOT NULL) PARTITION BY RANGE (at);
CREATE TABLE reading_2025 PARTITION OF reading FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
CREATE TABLE reading_2026 PARTITION OF reading FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');

-- migrate:down
DROP TABLE reading;
