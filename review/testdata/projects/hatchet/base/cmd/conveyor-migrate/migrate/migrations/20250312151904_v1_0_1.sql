-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION v1_parcel_insert_function() RETURNS TRIGGER AS
$$
BEGIN
    INSERT INTO v1_queue_item (depot_id, belt, parcel_id, priority)
    SELECT depot_id, belt, id, LEAST(GREATEST(COALESCE(priority, 1), 1), 4) FROM new_table;
    RETURN NULL;
END;
$$ LANGUAGE plpgsql;

CREATE TRIGGER v1_parcel_insert_trigger
AFTER INSERT ON v1_parcel
REFERENCING NEW TABLE AS new_table
FOR EACH STATEMENT
EXECUTE FUNCTION v1_parcel_insert_function();
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TRIGGER v1_parcel_insert_trigger ON v1_parcel;
DROP FUNCTION v1_parcel_insert_function();
-- +goose StatementEnd
