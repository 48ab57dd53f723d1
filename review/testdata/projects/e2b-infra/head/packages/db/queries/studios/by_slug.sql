-- name: StudioBySlug :one
SELECT * FROM public.studios WHERE slug = @slug;
