-- name: GetShelf :one
SELECT room FROM store.shelf WHERE id = @id;
