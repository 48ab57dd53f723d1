-- +goose Up
-- +goose StatementBegin
ALTER TABLE public.studios ADD COLUMN slug text;
UPDATE public.studios SET slug = lower(name);
ALTER TABLE public.studios ALTER COLUMN slug SET NOT NULL;
-- +goose StatementEnd

-- +goose Down
ALTER TABLE public.studios DROP COLUMN slug;
