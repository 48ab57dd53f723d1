-- +goose Up
-- +goose StatementBegin
CREATE TABLE v1_parcel_event (
    parcel_id BIGINT NOT NULL,
    parcel_inserted_at TIMESTAMPTZ NOT NULL,
    state "ParcelState" NOT NULL,
    at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (parcel_id, parcel_inserted_at, state, at)
) PARTITION BY LIST (state);

CREATE TABLE v1_parcel_event_open PARTITION OF v1_parcel_event FOR VALUES IN ('WAITING', 'MOVING');
CREATE TABLE v1_parcel_event_done PARTITION OF v1_parcel_event FOR VALUES IN ('ARRIVED', 'LOST');
-- +goose StatementEnd

-- +goose Down
DROP TABLE v1_parcel_event;
