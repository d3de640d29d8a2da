-- Who signs in by a provider, by issuer and subject.

-- name: find
-- The user whom a provider knows by this subject.
SELECT u.* FROM identities i JOIN users u ON u.id = i.user_id
WHERE i.issuer = :issuer AND i.subject = :subject;

-- name: add
-- What a user signs in by, unless somebody has it.
INSERT INTO identities (issuer, subject, user_id, created_at)
VALUES (:issuer, :subject, :user_id, :created_at)
ON CONFLICT (issuer, subject) DO NOTHING;

-- name: of_user
-- All that a user signs in by, in a fixed order.
SELECT * FROM identities WHERE user_id = :user_id ORDER BY created_at, issuer, subject;
