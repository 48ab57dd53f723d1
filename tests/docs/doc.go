// Package docs compares the documents with the code. The names, links and commands in them exist, the Go blocks compile, and
// the tables of locks, defaults and limits match the code.
//
// The go command does not see that the results depend on files of another module. Run these tests with -count=1, as make
// does.
package docs
