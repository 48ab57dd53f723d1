-- +goose Up
CREATE TABLE public.pictures (
    studio_id uuid PRIMARY KEY REFERENCES public.studios (id) ON DELETE CASCADE,
    url text NOT NULL
);

-- +goose Down
DROP TABLE public.pictures;
