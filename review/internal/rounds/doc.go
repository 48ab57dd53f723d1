// Package rounds runs the new migrations up, down and up again on a seeded database: the way back must lead to the
// schema before, and must not lose the contents of rows.
//
// A migration without a way back says so: "-- irreversible: the old prices are not kept". It is then not rolled back.
//
// Rules, with their severities:
//
//	migration-fails-on-rows     blocking  a migration succeeds on an empty database and fails on one with rows
//	down-fails                  blocking  the way back fails
//	down-missing                risk      a migration that changes something has no statement down, and gives no reason
//	down-differs                risk      the way back does not lead to the schema before
//	up-again-fails              blocking  after the way back the migrations cannot be applied any more
//	up-again-differs            risk      applied again they make another schema
//	rows-do-not-survive         blocking  rows, or the values of a column, that existed before are lost up or down
//	rows-lost-by-decision       note      the same of a migration that gives its reason for having no way back
//	irreversible                note      a migration that is not rolled back, with its reason
package rounds
