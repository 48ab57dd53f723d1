-- +goose Up
ALTER DOMAIN handle
ADD CONSTRAINT handle_not_reserved CHECK (value <> 'admin')
;
