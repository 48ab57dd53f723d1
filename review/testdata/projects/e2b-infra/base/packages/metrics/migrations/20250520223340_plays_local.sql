-- +goose Up
CREATE TABLE plays_local (
    at DateTime64(9) CODEC (Delta, ZSTD(1)),
    recording LowCardinality(String)
) ENGINE = MergeTree
PARTITION BY toDate(at)
ORDER BY (recording, at);

-- +goose Down
DROP TABLE plays_local;
