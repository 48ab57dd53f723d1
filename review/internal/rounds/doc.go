// Package rounds takes the new migrations up, down and up again on a seeded database: the way back must lead to the
// schema that it came from, and what rows held before must be there afterwards.
//
// A migration without a way back says so: "-- irreversible: the old prices are not kept". It is not taken back then.
//
// Rules, with their severities:
//
//	migration-fails-on-rows     blocking  a migration that an empty database takes is refused by one with rows
//	down-fails                  blocking  the way back is refused
//	down-missing                risk      a migration that changes something has no statement down, and gives no reason
//	down-differs                risk      the way back does not lead to the schema before
//	up-again-fails              blocking  after the way back the migrations cannot be applied any more
//	up-again-differs            risk      applied again they make another schema
//	rows-do-not-survive         blocking  rows, or the values of a column, that were there before are lost up or down
//	rows-lost-by-decision       note      the same of a migration that gives its reason for having no way back
//	irreversible                note      a migration that is not taken back, with its reason
package rounds
