// Package api compares the Go packages that sqlc generates before and after a change, as those see them who import them.
//
// sqlc is the project's own where a module of it has it as a tool, else the one on PATH; without any, the packages that
// are committed are compared. Each side is generated into a folder of its own.
//
// The packages are read by go/types and compared by apidiff. Types of other packages are known by name only, so nothing
// has to be downloaded: of them a change of a generated package tells nothing but which one is used.
//
//	rule                   severity  what it is about
//	generate-fails         blocking  sqlc refuses the queries on the schema of the change
//	generated-code-stale   risk      the committed package is not what sqlc generates
//	api-removed            risk      a function, type or field is gone: programs that use it do not compile
//	api-changed            risk      its type is another one
//	api-nullability        risk      its type is another one, as the value may be NULL from now on, or no longer
package api
