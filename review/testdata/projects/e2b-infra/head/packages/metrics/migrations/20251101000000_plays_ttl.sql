-- +goose Up
ALTER TABLE plays_local MODIFY TTL toDateTime(at) + INTERVAL 7 DAY;

-- +goose Down
ALTER TABLE plays_local REMOVE TTL;
