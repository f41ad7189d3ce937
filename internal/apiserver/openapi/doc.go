// Package openapi describes the served resources as OpenAPI documents, version
// 2 and 3, equal to upstream's. The schemas of Go types are read from a file that is
// generated from the sources of these (package markers): it has what cannot be seen
// of a type in a program, such as descriptions, defaults, and how lists are merged.
// Kinds that are known at run time only say their schema themselves.
//
// Documents are made when somebody asks for them, and forgotten when nobody has for a
// while (memo.go). By the hash of what it is made from, clients know whether a document is the one they have,
// and it need not be made for that. Start at service.go; schema.go collects the schemas of a document, paths.go turns a
// resource into paths, subpaths.go its subresources, query.go has their parameters; roots.go
// the paths that are no resource's, marks.go which kinds a schema is that of; proto.go writes documents as protobuf,
// others.go adds to it what other servers have. Documents are long, and what becomes of their text is little: it is gone through where
// it stands, and not decoded.
package openapi
