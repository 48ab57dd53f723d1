-- name: GetStudioWithPlan :one
SELECT sqlc.embed(s), sqlc.embed(p)
FROM public.studios s
JOIN public.plans p ON p.id = s.plan
WHERE s.id = @studio_id;
