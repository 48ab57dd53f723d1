-- name: GetShelf :one
SELECT room FROM stock.shelf WHERE id = @id;
