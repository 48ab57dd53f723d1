// Package rounds runs the new migrations up, down and up again on a seeded database: the way back must lead to the
// schema before, and must not lose the contents of rows.
//
// A migration without a way back says so: "-- irreversible: the old prices are not kept". It is then not rolled back.
package rounds
