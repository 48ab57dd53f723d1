// Package rules judges migrations by their text. Some rules need no database; others are guesses, for cases without
// one.
//
//	rule                             severity  meaning
//	released-migration-changed       blocking  the way up of a migration that the base branch has is another one
//	released-migration-removed       blocking  a migration that the base branch has is gone
//	released-way-down-changed        advice    only its way down is another one
//	migration-version-twice          blocking  two files have one version, in the change or in it and the base branch
//	migration-out-of-order           risk      a new version is lower than one that databases have
//	outside-transaction              blocking  a statement that PostgreSQL refuses inside a transaction, in a migration that is one
//	concurrently-not-alone           blocking  such a statement beside others: they are sent as one text, which is a transaction
//	concurrently-if-not-exists       advice    IF NOT EXISTS takes the invalid index of a failed build for a good one
//	transaction-ended-early          risk      COMMIT and the like in a migration that is one transaction
//	drop-cascade                     risk      the dropped objects are not named
//	enum-value-renamed               blocking  old programs send and know the old name
//	enum-value-used-at-once          blocking  a new value is used by the transaction that adds it
//	silence-unreadable               risk      a comment "review: …" that is no silencing one
//	silence-expired                  risk      its day has passed, so it accepts nothing
//	silence-long                     advice    its day is more than a year away
//	silence-unused                   advice    there is nothing that it would accept
//
// The following rules guess from the text. [Guesses] names them. If internal/observe observed the statement, its
// findings replace them.
//
//	index-without-concurrently       risk      CREATE INDEX or REINDEX stops writers while it reads the table
//	constraint-without-not-valid     risk      a foreign key or check that is checked at once
//	unique-without-index             risk      UNIQUE, PRIMARY KEY or EXCLUDE that builds its index
//	not-null-without-check           risk      SET NOT NULL without a validated check (column IS NOT NULL)
//	volatile-default                 risk      a new column whose default differs from row to row
//	generated-column                 risk      a new column that is computed and stored
//	column-type-changed              risk      ALTER COLUMN TYPE, which rewrites the table unless the stored form is the same
//	validate-in-same-transaction     risk      VALIDATE while the lock of ADD … NOT VALID is held
//	lock-without-timeout             advice    a lock that stops programs, without lock_timeout
//
// Migrations of the base branch are frozen. A change is compared with the base branch's own text, so there is no file
// of checksums to keep. Comments and white space may change.
package rules

// Guesses are the rules that internal/observe decides better.
var Guesses = []string{
	"column-type-changed", "constraint-without-not-valid", "generated-column", "index-without-concurrently",
	"lock-without-timeout", "not-null-without-check", "unique-without-index", "validate-in-same-transaction", "volatile-default",
}
