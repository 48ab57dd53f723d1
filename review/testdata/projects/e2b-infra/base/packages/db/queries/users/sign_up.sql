-- name: SignUp :one
INSERT INTO identity.users (email) VALUES (@email) RETURNING id;
