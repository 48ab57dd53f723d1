-- +goose Up
-- +goose StatementBegin
CREATE SCHEMA IF NOT EXISTS identity;

CREATE TABLE IF NOT EXISTS identity.users (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    email text NOT NULL,
    PRIMARY KEY (id)
);

CREATE OR REPLACE FUNCTION identity.current_id() RETURNS uuid AS $func$
BEGIN
    RETURN NULLIF(current_setting('studio.user', true), '')::uuid;
END;
$func$ LANGUAGE plpgsql STABLE;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'studio_visitor') THEN
        EXECUTE 'CREATE ROLE studio_visitor';
    END IF;
END
$$;

GRANT USAGE ON SCHEMA identity TO studio_visitor;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP SCHEMA identity CASCADE;
-- +goose StatementEnd
