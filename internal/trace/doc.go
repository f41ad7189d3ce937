// Package trace ties tests to the requirements that they prove.
//
// A test calls [Proves] with the IDs it shows to hold. When KEMUDI_TRACE_DIR
// is set (as `make test` does), a test that has passed leaves one record in
// that directory; `make requirements` turns the records into the report
// docs/requirements/COVERAGE.md. A test that fails, is skipped or is not run
// leaves nothing, so the report shows only what was really executed.
//
// What lives here: the reader of the catalogue in docs/requirements, the
// records and the report. It is for tests and tools: nothing that goes into
// the program may import it, and it imports no other package of ours than
// the catalogue.
package trace
