// Package markers reads what Go types and their sources say of an API, as the schemas
// of OpenAPI have it: types and JSON names from the types themselves; descriptions,
// defaults, enums, what is required, and how lists and maps are merged from the
// comments beside them and the markers in these ("+listType=map").
//
// It reads them as upstream's generator does, its peculiarities included, so that
// the schemas are upstream's. Start at [Read]; source.go has the comments,
// schema.go makes a type's schema, marker.go knows the markers, enum.go
// the types with few values, union.go fields of which one is set.
//
// Only the test that writes the schemas' file uses it: the program has the file, and
// no source.
package markers
