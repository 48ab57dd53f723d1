-- name: ListPedigrees :many
SELECT p.id, p.name, p.traits, k.name AS kennel
FROM pedigree p JOIN kennel k ON k.id = p.kennel_id
WHERE k.name = sqlc.arg(kennel) AND (sqlc.narg(claims)::jsonb IS NULL OR p.claims @> sqlc.narg(claims)::jsonb)
ORDER BY p.name LIMIT sqlc.arg(size)::bigint;

-- name: ListLitters :many
SELECT position, born FROM litter WHERE pedigree_id = ANY (sqlc.slice(ids)::UUID[]) ORDER BY pedigree_id, position;
